"""Apply a function to chunks of rows in the graph, and choose the number of rows of a chunk.

The gradients of its rows are computed in parallel where TensorFlow can vectorise that.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.replicas import replica_kind
from trainer_module.window.gradient_sum import buckets
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import LIMITS, Batch, StepInputs, WindowSpec, part_of_rows
from trainer_module.window.trace import (
    bytes_per_row,
    has_loops,
    is_compiled_by_xla,
    operation_types,
)

# Number of rows in memory at a time, or "auto".
ChunkSize: TypeAlias = int | Literal["auto"]
# More rows at a time were not faster, and a trace may underestimate the memory of a row.
_MOST_ROWS = 1024
# Numbers of rows are int32 in the graph.
_MOST_CHUNK_ROWS = 2**30


def resolve_chunk_size(chunk_size: ChunkSize, row_bytes: Callable[[], float]) -> int:
    """Return the number of rows of a chunk.

    Raises:
        ValueError: See `_check_chunk_size`.
    """
    _check_chunk_size(chunk_size)
    if chunk_size == "auto":
        limit = LIMITS[replica_kind(tf.distribute.get_strategy())].bytes_at_once
        return int(max(1, min(limit // max(1.0, row_bytes()), _MOST_ROWS)))
    return int(chunk_size)


def _check_chunk_size(chunk_size: ChunkSize) -> None:
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
    """Return the concatenation of `function(rows)` over consecutive chunks of rows."""
    chunk_size = _rows_of_chunk(data, chunk_size)
    rows = count_rows(data)
    count = -(-rows // chunk_size)
    arrays = [
        tf.TensorArray(dtype, count, element_shape=[None, *shape], infer_shape=False)
        for dtype, shape in specs
    ]

    def body(index: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
        found = function(part_of_rows(data, index, chunk_size))
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
    """Return the sums of `function(rows)` over consecutive chunks of rows."""
    chunk_size = _rows_of_chunk(data, chunk_size)
    zeros = [tf.zeros(shape, dtype) for dtype, shape in specs]

    def body(index: Any, sums: list[Any]) -> tuple[Any, list[Any]]:
        found = function(part_of_rows(data, index, chunk_size))
        return index + 1, [
            total + tf.cast(tensor, total.dtype) for total, tensor in zip(sums, found, strict=True)
        ]

    count = -(-count_rows(data) // chunk_size)
    _, sums = tf.while_loop(
        lambda index, _: index < count, body, (tf.constant(0), zeros), parallel_iterations=1
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


_SHAPES_BY_VALUES = ("Where", "DynamicPartition", "Unique", "StringSplit")
_SOFTMAX = ("Softmax", "LogSoftmax")


def number_rows(batch: Tensors) -> tuple[Tensors, tf.Tensor]:
    """Return the batch with the number of each row, from which its random numbers are derived."""
    return batch, tf.range(count_rows(batch))


def chunk_function(
    of_row: Callable[[Any, tf.Tensor], list[tf.Tensor]], batch: Tensors
) -> tuple[Callable[[Any], list[tf.Tensor]], list[tf.TensorSpec]]:
    """Return a function of a chunk of rows, and the specs of what it returns for one row.

    Raises:
        ValueError: The trace has a loop or a shape that depends on values, and the function that is
            being traced has `jit_compile=True`.
    """
    places = tf.nest.map_structure(lambda t: t is not None, batch)
    present = [t for t in tf.nest.flatten(batch) if t is not None]

    def of_tensors(number: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(tensors)
        one = tf.nest.map_structure(lambda place: next(rest)[tf.newaxis] if place else None, places)
        return of_row(one, number)

    traced = tf.function(of_tensors, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.int32), *(tf.TensorSpec(t.shape[1:], t.dtype) for t in present)
    )
    # XLA has no kernel for the vectorised loop, and compiles the loop per row for a minute or more.
    loops = has_loops(traced.graph)
    # It pads tensors whose shape depends on values, which changes the gradients.
    if (loops or not has_fixed_shapes(traced.graph)) and is_compiled_by_xla():
        raise ValueError(
            "jit_compile=True, and the model has a loop, such as that of LSTM, or a shape that "
            "depends on values, as of tf.boolean_mask: compute gradients of rows without "
            "jit_compile, or build a recurrent layer with unroll=True."
        )
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in traced.structured_outputs]
    vectorised = _can_be_vectorised(traced.graph, replica_kind(tf.distribute.get_strategy()))
    # Converting this package's code would take seconds, and the trace above is without it, too.
    of_elements = tf.autograph.experimental.do_not_convert(lambda row: of_tensors(*row))

    def of_chunk(part: Any) -> list[tf.Tensor]:
        rows, numbers = part
        elements = [numbers, *(t for t in tf.nest.flatten(rows) if t is not None)]
        if not vectorised:
            # Row by row, with some rows in parallel.
            return tf.map_fn(of_elements, elements, fn_output_signature=specs)
        count = tf.shape(numbers)[0]
        if loops:  # of one row, the vectorised loop of LSTM fails: it is computed twice
            again = tf.maximum(2 - count, 0)
            elements = [tf.concat([tensor, tensor[:again]], 0) for tensor in elements]
        found = tf.vectorized_map(of_elements, elements, warn=False)
        return [tensor[:count] for tensor in found] if loops else found

    return of_chunk, specs


def _can_be_vectorised(graph: Any, kind: str = "CPU") -> bool:
    """Return whether `tf.vectorized_map` computes the trace of one row correctly.

    The loop of a recurrent layer is vectorised if its number of iterations is known. Tensors whose
    shapes depend on the row's values, as those of `tf.boolean_mask`, cannot be stacked. On a CPU,
    the softmax of oneDNN, which has no float64, ends the process with SIGSEGV for tensors of rank
    5, to which `tf.vectorized_map` makes the rank 4 of the scores of MultiHeadAttention.
    """
    if math.isinf(bytes_per_row(graph)) or not has_fixed_shapes(graph):
        return False
    if kind != "CPU":
        return True
    # Shapes within functions are unknown here, so that any softmax in one counts.
    inner = (node for f in graph.as_graph_def().library.function for node in f.node_def)
    if any(node.op in _SOFTMAX for node in inner):
        return False
    softmaxes = [op.outputs[0] for op in graph.get_operations() if op.type in _SOFTMAX]
    return not any(
        tensor.dtype != tf.float64 and (tensor.shape.rank is None or tensor.shape.rank >= 4)
        for tensor in softmaxes
    )


def has_fixed_shapes(graph: tf.Graph) -> bool:
    """Return whether no tensor of a trace has a shape that depends on values of the row."""

    def are_known(tensors: Sequence[tf.Tensor]) -> bool:
        return all(tensor.shape.is_fully_defined() for tensor in tensors)

    if any(name.startswith(_SHAPES_BY_VALUES) for name in operation_types(graph)):
        return False
    return not any(
        op.inputs and are_known(op.inputs) and not are_known(op.outputs)
        for op in graph.get_operations()
        if op.type != "BroadcastGradientArgs"  # axes, which are a function of shapes
    )


def row_bytes(spec: WindowSpec, batch: Tensors) -> float:
    """Return an estimate of the memory of one row: activations and two copies of its gradients."""

    def probe(*parts: Any) -> None:
        inputs = StepInputs(random_position=(0,))
        micro_batch_gradients(spec, Batch(*parts), inputs, separate=False)

    traced = tf.function(probe, autograph=False).get_concrete_function(*row_specs(batch))
    variables = spec.model.trainable_variables
    sizes = [math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables]
    return bytes_per_row(traced.graph) + 2 * sum(sizes)
