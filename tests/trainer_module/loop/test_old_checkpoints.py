"""A checkpoint that version 0.1 wrote (`old_checkpoint.py`) continues with the code as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import keras
import old_checkpoint
import pytest
import tensorflow as tf

STORED = Path(__file__).parent / "checkpoint_0_1"
# Layer and optimizer configurations are Keras' own and change with its version.
WRITTEN_BY_KERAS = "3.15.1"
needs_same_keras = pytest.mark.skipif(
    keras.__version__ != WRITTEN_BY_KERAS, reason=f"the checkpoint is of Keras {WRITTEN_BY_KERAS}"
)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(STORED, tmp_path / "checkpoints")


@needs_same_keras
def test_old_checkpoint_resumes(folder):
    result = old_checkpoint.build(folder, epochs=3).fit()
    assert (result.stopped, result.epochs, result.steps) == ("epochs", 3, 7)
    assert result.history["val_loss"][:2] == [5.741536021232605, 5.632952690124512]
    table = (folder.parent / "epochs.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in table] == ["epoch", "1", "2", "3"]


@needs_same_keras
def test_finished_old_run_is_not_repeated(folder):
    result = old_checkpoint.build(folder).fit()
    position = json.loads(tf.train.load_checkpoint(str(folder)).get_tensor("position"))
    assert result._asdict() == position["calls"][0]["result"]


@needs_same_keras
def test_old_checkpoint_with_another_option_is_rejected(folder):
    with pytest.raises(ValueError, match=r"clip_norm was 1\.5 and is 2"):
        old_checkpoint.build(folder, clip_norm=2.0).fit()
