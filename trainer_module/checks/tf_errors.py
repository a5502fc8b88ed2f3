"""Translate graph errors that are caused by rows into messages with the value and a fix."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from trainer_module.devices.worker_group import current_workers

_LABEL = re.compile(r"Received a label value of (-?\d+) which is outside .* \[0, (\d+)\)")
_INDEX = re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)")
# UnreadableRows of data/parquet_rows.py, as TensorFlow writes an error of a Python function.
_UNREADABLE = re.compile(r"\bUnreadableRows: (.*?)\nTraceback ", re.DOTALL)
_NODE = re.compile(r"\{\{node (?:(?:while|cond)(?:_\d+)?/)*([^}]+)/[^/}]+\}\}")

_OF_NAN = -(2**63)  # NaN converted to an integer on x86; other processors may convert it to 0
# Errors of an interrupted collective; the type depends on how TensorFlow detects it.
_OF_A_COLLECTIVE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


@contextlib.contextmanager
def translate_tf_errors() -> Iterator[None]:
    """Translate TensorFlow's errors in a `with` block.

    The error of TensorFlow becomes the cause of the new one. Errors without a translation are not
    changed.

    Raises:
        ValueError: A label or an id is out of the model's range, or rows cannot be read.
        WorkerLost: A collective was interrupted because a worker was lost.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        explanation = explain_tf_error(error.message)
        if explanation is None:
            raise
        raise ValueError(explanation) from error
    except _OF_A_COLLECTIVE as error:
        worker_lost = current_workers().as_worker_lost(error)
        if worker_lost is error:
            raise
        raise worker_lost from error


def explain_tf_error(message: str) -> str | None:
    """Return an explanation of TensorFlow's error message, or None for an unknown message."""
    if found := _LABEL.search(message):
        value, count = map(int, found.groups())
        if value == _OF_NAN:
            return (
                "a label is not a number, and the loss takes classes: drop rows whose label is not "
                "known, or give them a weight of 0."
            )
        unseen = " (which a vocabulary gives a class that it does not have)" if value == -1 else ""
        return (
            f"a label is class {value}{unseen}, and the outputs are those of {count} classes, 0 to "
            f"{count - 1}: give the last layer a unit for each class and encode the classes as "
            "0, 1, 2, ..., or drop rows of other classes, or give them a weight of 0."
        )
    if found := _UNREADABLE.search(message):
        return found[1]
    if found := _INDEX.search(message):
        value, count = map(int, found.groups())
        node = _NODE.search(message)
        place = f" in {node[1]!r}" if node else ""
        return (
            f"an id is {value}, and the table{place} has {count} rows, for ids 0 to {count - 1}: "
            "give the table (keras.layers.Embedding's input_dim) a row for each id, or map other "
            "ids to one of them in Transform."
        )
    return None
