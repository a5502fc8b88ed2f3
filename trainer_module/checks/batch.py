"""Check that a batch consists of dense tensors with the same number of rows.

Errors of the graph that rows cause become messages with the value and a fix.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.worker_group import current_workers

_PARTS = ("features", "labels", "sample_weight")


def check_batch(features: Tensors, labels: Tensors, sample_weight: Tensors = None) -> None:
    """Check shapes and types of a batch without reading values.

    If labels had a different number of rows, the loss could broadcast them or rows would be
    dropped.

    Raises:
        ValueError: A tensor has no rows axis, an unknown rank or a different number of rows, or is
            not dense.
    """
    found: int | None = None
    for part, structure in zip(_PARTS, (features, labels, sample_weight), strict=True):
        for tensor in tf.nest.flatten(structure):
            if tensor is None:
                continue
            rows = _shape(tensor, part)[0]
            if found is not None and rows is not None and rows != found:
                raise ValueError(
                    f"{part} have {rows} rows where other tensors of the batch have {found}: give "
                    "one per row."
                )
            found = rows if found is None else found


def count_rows(features: Tensors, labels: Tensors, sample_weight: Tensors = None) -> tf.Tensor:
    """Return the number of rows, a scalar int32 tensor, after `check_batch`.

    Raises:
        ValueError: See `check_batch`.
        InvalidArgumentError: The numbers of rows differ, if they are known only at run time.
    """
    check_batch(features, labels, sample_weight)
    first, *others = [
        tf.convert_to_tensor(tensor)
        for tensor in tf.nest.flatten((features, labels, sample_weight))
        if tensor is not None
    ]
    rows = tf.shape(first)[0]
    unknown = [t for t in others if t.shape[0] is None or first.shape[0] is None]
    checks = [
        tf.debugging.assert_equal(
            tf.shape(tensor)[0], rows, "features, labels and sample_weight differ in rows."
        )
        for tensor in unknown
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(rows)


def _shape(tensor: Tensors, part: str) -> tf.TensorShape:
    if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
        how = "to_tensor()" if isinstance(tensor, tf.RaggedTensor) else "tf.sparse.to_dense"
        raise ValueError(
            f"{part} hold a {type(tensor).__name__}: only dense tensors can be split into rows; "
            f"convert it in the input pipeline ({how})."
        )
    shape = tf.TensorShape(getattr(tensor, "shape", ()))
    if shape.rank is None:
        raise ValueError(
            f"{part} hold a tensor of unknown rank: set its shape in the input pipeline, such as "
            "tf.ensure_shape(tensor, [None, 5])."
        )
    if shape.rank == 0:
        raise ValueError(
            f"{part} hold a single number, which has no rows: give a tensor or array [rows, ...] "
            "(of a list of numbers, np.asarray)."
        )
    return shape


_LABEL = re.compile(r"Received a label value of (-?\d+) which is outside .* \[0, (\d+)\)")
_INDEX = re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)")
# _UnreadableRows of data/parquet_rows.py, as TensorFlow writes an error of a Python function.
_UNREADABLE = re.compile(r"\b_UnreadableRows: (.*?)\nTraceback ", re.DOTALL)
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
        RuntimeError: A replica of this process failed, and TensorFlow does not say why.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        explanation = _explain_tf_error(error.message)
        if explanation is None:
            raise
        raise ValueError(explanation) from error
    except _OF_A_COLLECTIVE as error:
        worker_lost = current_workers().as_worker_lost(error)
        if worker_lost is error:
            if "RecvAsync is cancelled" in str(error):  # of several devices of one process
                raise RuntimeError(
                    "a replica failed, and TensorFlow only says that the others were cancelled. "
                    "Check that labels and ids are in range, or train on one device to see why."
                ) from error
            raise
        raise worker_lost from error


def _explain_tf_error(message: str) -> str | None:
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
