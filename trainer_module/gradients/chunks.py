"""Apply a function to chunks of rows in the graph, and choose the number of rows of a chunk."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.replicas import replica_kind
from trainer_module.window.passes import LIMITS
from trainer_module.window.reduction import buckets

# Number of rows in memory at a time, or "auto".
ChunkSize: TypeAlias = int | Literal["auto"]
# More rows at a time were not faster, and a trace may underestimate the memory of a row.
_MOST_ROWS = 1024
# Numbers of rows are int32 in the graph.
_MOST_CHUNK_ROWS = 2**30


def resolve_chunk_size(chunk_size: ChunkSize, row_bytes: Callable[[], float]) -> int:
    """Return the number of rows of a chunk.

    Args:
        chunk_size: A number of at least 1, or "auto": as many rows as hold 128 MiB, on a GPU
            256 MiB, up to 1,024.
        row_bytes: Function that returns an estimate of the memory of one row in bytes. It is
            called only for "auto".

    Raises:
        ValueError: See `check_chunk_size`.
    """
    check_chunk_size(chunk_size)
    if chunk_size == "auto":
        limit = LIMITS[replica_kind(tf.distribute.get_strategy())].bytes_at_once
        return int(max(1, min(limit // max(1.0, row_bytes()), _MOST_ROWS)))
    return int(chunk_size)


def check_chunk_size(chunk_size: ChunkSize) -> None:
    """Raise ValueError unless chunk_size is "auto" or an integer of at least 1."""
    if isinstance(chunk_size, str) and chunk_size == "auto":
        return
    is_number = isinstance(chunk_size, numbers.Integral) and not isinstance(chunk_size, bool)
    if not is_number or chunk_size < 1:
        raise ValueError(
            f'chunk_size={chunk_size!r}: use a whole number of at least 1 row, or "auto".'
        )


def map_chunks(
    function: Callable[[Any], list[tf.Tensor]], data: Tensors, specs: list[Any], *, chunk_size: int
) -> list[tf.Tensor]:
    """Return the concatenation of `function(rows)` over consecutive chunks of rows.

    Args:
        function: Function of the structure of `data` with up to `chunk_size` rows. It returns
            tensors with the same number of rows `[rows, ...]`.
        data: Structure of tensors `[rows, ...]` or None.
        specs: (dtype, shape without rows) of each tensor that `function` returns.
        chunk_size: Number of rows at a time; it bounds the memory. In XLA, fewer rows if it does
            not divide their number.

    Returns:
        One tensor `[rows, ...]` per entry of `specs`.
    """
    chunk_size = _rows_of_chunk(data, chunk_size)
    rows = count_rows(data)
    count = -(-rows // chunk_size)
    arrays = [
        tf.TensorArray(dtype, count, element_shape=[None, *shape], infer_shape=False)
        for dtype, shape in specs
    ]

    def body(index: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
        start = index * chunk_size
        found = function(_rows_from(data, start, chunk_size))
        written = [a.write(index, tensor) for a, tensor in zip(arrays, found, strict=True)]
        return index + 1, written

    def all_chunks() -> list[tf.Tensor]:
        _, filled = tf.while_loop(
            lambda index, _: index < count, body, (tf.constant(0), arrays), parallel_iterations=1
        )
        return [array.concat() for array in filled]

    def none() -> list[tf.Tensor]:
        return [tf.zeros([0, *shape], dtype) for dtype, shape in specs]

    # An empty TensorArray cannot be concatenated.
    return tf.cond(rows > 0, all_chunks, none)


def sum_chunks(
    function: Callable[[Any], list[tf.Tensor]], data: Tensors, specs: list[Any], *, chunk_size: int
) -> list[tf.Tensor]:
    """Return the sums of `function(rows)` over consecutive chunks of rows.

    Args:
        function: Function of the structure of `data` with up to `chunk_size` rows. It returns sums
            over these rows.
        data: Structure of tensors `[rows, ...]` or None.
        specs: (dtype, shape) of each tensor that `function` returns.
        chunk_size: Number of rows at a time; it bounds the memory.
    """
    chunk_size = _rows_of_chunk(data, chunk_size)
    rows = count_rows(data)
    zeros = [tf.zeros(shape, dtype) for dtype, shape in specs]

    def body(start: Any, sums: list[Any]) -> tuple[Any, list[Any]]:
        found = function(_rows_from(data, start, chunk_size))
        return start + chunk_size, [
            total + tf.cast(tensor, total.dtype) for total, tensor in zip(sums, found, strict=True)
        ]

    _, sums = tf.while_loop(
        lambda start, _: start < rows, body, (tf.constant(0), zeros), parallel_iterations=1
    )
    return sums


def count_rows(data: Tensors) -> tf.Tensor:
    """Return the number of rows of a structure of tensors or None, a scalar int32 tensor."""
    return tf.shape(next(t for t in tf.nest.flatten(data) if t is not None))[0]


def row_specs(data: Tensors) -> Tensors:
    """Return the specs of the tensors for any number of rows; None stays."""
    return tf.nest.map_structure(
        lambda t: None if t is None else tf.TensorSpec([None, *t.shape[1:]], t.dtype), data
    )


def sum_tensors_over_replicas(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return the sums over all replicas inside `strategy.run`, else the tensors."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors
    reduced: dict[int, tf.Tensor] = {}
    for places in buckets(tensors):
        part = [tensors[place] for place in places]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, part)
        reduced.update(zip(places, sums, strict=True))
    return [reduced[place] for place in range(len(tensors))]


def _rows_from(data: Tensors, start: Any, chunk_size: int) -> Tensors:
    compiled = is_compiled_by_xla()

    def rows_of(tensor: Any) -> Any:
        if tensor is None:
            return None
        if not compiled:
            return tensor[start : start + chunk_size]
        # XLA has to know the number of rows, by which vectorised products of matrices transpose.
        others = tensor.shape.rank - 1
        return tf.slice(tensor, [start] + [0] * others, [chunk_size] + [-1] * others)

    return tf.nest.map_structure(rows_of, data)


def is_compiled_by_xla() -> bool:
    """Return whether the function that is being traced has `jit_compile=True`, or its caller."""
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def _rows_of_chunk(data: Tensors, chunk_size: int) -> int:
    """Return the number of rows of each chunk; in XLA, it divides the number of rows.

    XLA pads a smaller last chunk to the size of the others, which would add rows to the result.
    """
    if not is_compiled_by_xla():
        return min(chunk_size, _MOST_CHUNK_ROWS)
    rows = next(t for t in tf.nest.flatten(data) if t is not None).shape[0]
    if rows is None:
        raise ValueError(
            "jit_compile=True, and the number of rows is not known when the function is traced: "
            "give tensors of a fixed number of rows, or compute gradients outside of the function."
        )
    most = max(1, min(chunk_size, rows))
    return next(size for size in range(most, 0, -1) if rows % size == 0)
