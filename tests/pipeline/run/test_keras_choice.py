"""What becomes of TF_USE_LEGACY_KERAS, which decides what `tf.keras` is for the whole process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.run.runner import run


@pytest.mark.parametrize(("before", "after"), [(None, "0"), ("1", "1")])
def test_importing_pipeline_leaves_a_value_of_the_users_own(before, after):
    environment = {name: v for name, v in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if before is not None:
        environment["TF_USE_LEGACY_KERAS"] = before
    code = "import os, pipeline; print(os.environ['TF_USE_LEGACY_KERAS'])"
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert printed.strip() == after


@pytest.mark.parametrize(("value", "printed"), [("0", False), ("1", True)])
def test_a_run_says_that_tf_keras_is_keras_2(write, monkeypatch, capsys, value, printed):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", value)
    with pytest.raises(ConfigError, match="cannot write there"):  # so that nothing more runs
        run(load_config(write(), ["serving.push_folder=rows.csv/out"]))
    assert (
        "tf.keras is Keras 2 here, which the Trainer does not" in capsys.readouterr().out
    ) == printed
