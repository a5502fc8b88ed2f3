"""The section Training against what a training wrote: its checkpoint."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from run_inputs import blocks_of, page_run

from pipeline.page import training
from pipeline.page.elements import Chart, Section, Text, Tiles
from trainer_module.loop.callback import FitResult
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import TrainStep

MODEL_RUN = ("Trainer", "model_run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FitResult]:
    """A folder `model_run`, and the result of the training: one of its 12 windows is skipped."""
    folder = tmp_path_factory.mktemp("model_run")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    step = TrainStep(
        model, keras.optimizers.SGD(0.05), "mse", micro_batch_size=4, non_finite="skip"
    )
    features = np.random.default_rng(0).normal(size=(16, 2)).astype("float32")
    labels = features.sum(axis=1, keepdims=True)
    odd = features.copy()
    odd[0, 0] = np.inf
    rows = [tf.data.Dataset.from_tensor_slices((x, labels)).batch(4) for x in (odd, features)]
    loop = TrainingLoop(
        step,
        rows[0],
        epochs=3,
        evaluate=Evaluation(model, "mse", rows[1]),
        checkpoints=Checkpoints(str(folder / "checkpoints" / "a1b2"), step),
    )
    return folder, loop.fit()


def charts(section: Section) -> dict[str, Chart]:
    return {each.title: each for each in blocks_of(section.blocks, Chart)}


def test_the_values_are_those_of_the_training(
    trained: tuple[Path, FitResult], tmp_path: Path
) -> None:
    folder, result = trained
    section = training.section_of(page_run(tmp_path, {MODEL_RUN: folder}))
    loss = charts(section)["Loss by epoch"].data
    shown = {
        name: [y for y, s in zip(loss["y"], loss["series"], strict=True) if s == name]
        for name in ("train", "eval")
    }
    np.testing.assert_allclose(shown["train"], result.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(shown["eval"], result.history["val_loss"], rtol=1e-5)
    (tiles,) = blocks_of(section.blocks, Tiles)
    found = {each.name: each for each in tiles.tiles}
    skipped = sum(result.skipped.values())
    assert skipped == 3
    assert (found["skipped steps"].value, found["skipped steps"].state) == ("3", "warning")
    assert found["skipped steps"].note == "non finite: 3"
    assert (found["optimizer steps"].value, found["ended by"].value) == ("12", "last epoch")
    best = int(np.argmin(result.history["val_loss"])) + 1
    assert found["kept epoch"].value == str(best)


def test_a_run_without_a_checkpoint_or_a_trainer_says_so(tmp_path: Path) -> None:
    section = training.section_of(page_run(tmp_path / "1", {MODEL_RUN: tmp_path}))
    (text,) = section.blocks
    assert "left no checkpoint" in text.text  # pyright: ignore[reportAttributeAccessIssue]
    section = training.section_of(page_run(tmp_path / "2", {}))
    assert section.blocks == [Text("This run has no output of a Trainer.", "quiet")]
