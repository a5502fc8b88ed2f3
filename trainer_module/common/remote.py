"""Operations on files that may be far away: what fails for a moment is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf
from absl import logging

Result = TypeVar("Result")

# What the file systems of TensorFlow answer when the remote end does not; all else is final.
_PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
_PASSING_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
)
PATIENCE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


def with_patience(
    operation: Callable[[], Result], *, what: str, patience_seconds: float = PATIENCE_SECONDS
) -> Result:
    """Returns what the operation returns, trying again while the remote end does not answer.

    Pauses grow from 0.1 s to 10 s.

    Args:
        operation: May be called several times; an attempt that failed must not hinder the next.
        what: Is done, for the log: "writing gs://bucket/ckpt-12".
        patience_seconds: After the first attempt, how long others begin.

    Raises:
        tf.errors.OpError: Of the last attempt, or at once one that will not pass.
    """
    until = time.monotonic() + patience_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return operation()
        except tf.errors.OpError as error:
            if not will_pass(error) or time.monotonic() + pause > until:
                raise
            logging.warning("%s failed (%s); trying again in %.1f s", what, reason_of(error), pause)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def will_pass(error: tf.errors.OpError) -> bool:
    """Returns whether the remote end did not answer.

    Reading a checkpoint gives an error of another type, with that of the file system as its text.
    """
    return isinstance(error, _PASSING_ERRORS) or any(
        f"{name}: " in str(error.message) for name in _PASSING
    )


def reason_of(error: tf.errors.OpError) -> str:
    """Returns what an error of TensorFlow says, without the operation that it came from."""
    first = str(error.message).splitlines()[0] if error.message else type(error).__name__
    return first.split("}} ")[-1].removesuffix("]").rpartition(" [Op:")[0] or first
