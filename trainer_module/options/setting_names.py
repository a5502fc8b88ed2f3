"""Messages of lower rooms name their arguments; a configuration's settings have longer names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from trainer_module.options.cluster_options import ClusterOptions

_ARGUMENT = re.compile(rf"(?<![\w.])(?=(?:{'|'.join(ClusterOptions.model_fields)})=)")
# What a program that makes its own `Checkpoints` or callbacks does differently.
_PHRASES = {
    "directory for checkpoints": "directory for checkpoints ({}.checkpoint_dir)",
    "leave out TensorBoardScalars": "set {}.tensorboard: false",
}


def to_setting_names(text: str, section: str = "trainer") -> str:
    """Return a message with the settings of a section in place of arguments.

    Args:
        text: "strategy='tpu': no TPU found".
        section: "trainer" gives "trainer.strategy='tpu': no TPU found".
    """
    text = _ARGUMENT.sub(f"{section}.", text)
    for phrase, named in _PHRASES.items():
        text = text.replace(phrase, named.format(section))
    return text


@contextlib.contextmanager
def setting_names(section: str = "trainer") -> Iterator[None]:
    """Name settings in the message of an error that leaves the `with` block; see above."""
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
