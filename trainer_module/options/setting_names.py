"""Translate argument names in messages of lower packages to a configuration's setting names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from trainer_module.options.cluster_options import ClusterOptions
from trainer_module.options.step_options import UpdateOptions
from trainer_module.options.task_options import TaskOptions

_SETTINGS = (ClusterOptions, UpdateOptions, TaskOptions)
_NAMES = "|".join(name for options in _SETTINGS for name in options.model_fields)
# Not in a call, such as `Evaluation(metrics=...)`.
_ARGUMENT = re.compile(rf"(?<![\w.])(?<!\w\()(?=(?:{_NAMES})=)")
# Suggestions that differ for a program that passes the arguments in code.
_PHRASES = {
    "set require_gpu=False": (
        "set {}.require_gpu: false, or remove `accelerator` from the Trainer's resources"
    ),
    "directory for checkpoints": "directory for checkpoints ({}.checkpoint_dir)",
    "leave out TensorBoardScalars": "set {}.tensorboard: false",
}


def to_setting_names(text: str, section: str = "trainer") -> str:
    """Return a message with a section's settings instead of arguments.

    Args:
        text: "strategy='tpu': no TPU found".
        section: "trainer" returns "trainer.strategy='tpu': no TPU found".
    """
    for phrase, named in _PHRASES.items():
        text = text.replace(phrase, named.format(section))
    return _ARGUMENT.sub(f"{section}.", text)


@contextlib.contextmanager
def setting_names(section: str = "trainer") -> Iterator[None]:
    """Translate the message of an error in the `with` block; see `to_setting_names`."""
    try:
        yield
    except Exception as error:
        error.args = tuple(
            to_setting_names(each, section) if isinstance(each, str) else each
            for each in error.args
        )
        if isinstance(error, OSError) and isinstance(error.strerror, str):
            error.strerror = to_setting_names(error.strerror, section)
        raise
