"""What `import trainer_module` brings, and how long it takes."""

from __future__ import annotations

import subprocess
import sys

import trainer_module


def modules_after(code: str) -> set[str]:
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name.partition(".")[0] for name in printed.split()}


def test_the_configuration_does_not_wait_for_tensorflow():
    code = (
        "from trainer_module import TrainerConfig, TunerConfig, prepare_process\n"
        "prepare_process(TrainerConfig.parse({'epochs': 1}))\n"
        "tuning = TunerConfig.parse({'search': {'clip_norm': {'values': [None, 1]}}})\n"
        "tuning.check(TrainerConfig.parse({'epochs': 1}))"
    )
    assert not modules_after(code) & {"tensorflow", "keras", "numpy", "tfx", "keras_tuner"}


def test_plain_tensorflow_users_need_neither_tfx_nor_beam_nor_keras_tuner():
    code = f"from trainer_module import {', '.join(trainer_module.__all__)}"
    with_tfx = {"tfx", "apache_beam", "tensorflow_transform", "tfx_bsl", "keras_tuner"}
    assert not modules_after(code) & with_tfx
