"""Retry operations on remote files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf
from absl import logging

Result = TypeVar("Result")

# Errors of TensorFlow's file systems when the remote end does not respond. Others are permanent.
_TRANSIENT = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
_TRANSIENT_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
)
PATIENCE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


def with_retries(
    operation: Callable[[], Result], *, what: str, patience_seconds: float = PATIENCE_SECONDS
) -> Result:
    """Return the result of an operation; retry it while the remote end does not respond.

    Pauses grow from 0.1 s to 10 s.

    The operation must be repeatable. No attempt starts `patience_seconds` after the first.

    Raises:
        tf.errors.OpError: The error of the last attempt, or a permanent error at once.
    """
    until = time.monotonic() + patience_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return operation()
        except tf.errors.OpError as error:
            if not is_transient(error) or time.monotonic() + pause > until:
                raise
            reason = error_reason(error)
            logging.warning("%s failed (%s); trying again in %.1f s", what, reason, pause)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def is_transient(error: tf.errors.OpError) -> bool:
    """Return whether the error means that the remote end did not respond.

    Reading a checkpoint raises another type, with the file system's error as its text.
    """
    return isinstance(error, _TRANSIENT_ERRORS) or any(
        f"{name}: " in str(error.message) for name in _TRANSIENT
    )


def error_reason(error: tf.errors.OpError) -> str:
    """Return the message of a TensorFlow error without the operation that raised it."""
    first = str(error.message).splitlines()[0] if error.message else type(error).__name__
    return first.split("}} ")[-1].removesuffix("]").rpartition(" [Op:")[0] or first
