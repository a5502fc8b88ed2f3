"""Compute the gradient of each row of a chunk, in parallel where TensorFlow can vectorise it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.replicas import replica_kind
from trainer_module.gradients.chunks import (
    ChunkSize,
    count_rows,
    is_compiled_by_xla,
    resolve_chunk_size,
    row_specs,
)
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec
from trainer_module.window.trace_bytes import bytes_per_row, has_loops, operation_types

_SHAPES_BY_VALUES = ("Where", "DynamicPartition", "Unique", "StringSplit")
_SOFTMAX = ("Softmax", "LogSoftmax")


class RowGradients(NamedTuple):
    """A function of a chunk of rows, and what it returns.

    Attributes:
        of_chunk: Function of `(batch, row numbers)` that returns tensors `[rows, ...]`.
        specs: (dtype, shape without rows) of each of them.
        chunk_size: Number of rows of a chunk.
    """

    of_chunk: Callable[[Any], list[tf.Tensor]]
    specs: list[tuple[tf.DType, list[int | None]]]
    chunk_size: int


def number_rows(batch: Tensors) -> tuple[Tensors, tf.Tensor]:
    """Return the batch with the number of each row, from which its random numbers are derived."""
    return batch, tf.range(count_rows(batch))


def replica_index() -> tf.Tensor | int:
    """Return the number of this replica among all; 0 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def row_gradients(
    spec: WindowSpec,
    batch: Tensors,
    *,
    chunk_size: ChunkSize,
    fold: Callable[[list[tf.Tensor]], list[tf.Tensor]],
    random_position: Sequence[Any] = (),
) -> RowGradients:
    """Return a function that computes w_i ∇l_i of each row of a chunk and folds it.

    Args:
        spec: Model and loss.
        batch: Tensors `[rows, ...]` or None: features, labels and weights.
        chunk_size: See `resolve_chunk_size`.
        fold: Function of one row's gradients that returns what is kept.
        random_position: See `per_example_gradients`.

    Raises:
        ValueError: A layer updates state when called, chunk_size is wrong, or the model has a loop
            in a function with `jit_compile=True`.
    """
    size = resolve_chunk_size(chunk_size, lambda: row_bytes(spec, batch))
    replica = replica_index()

    def of_row(row: Any, number: tf.Tensor) -> list[tf.Tensor]:
        inputs = StepInputs(random_position=(*random_position, replica, number))
        sums = micro_batch_gradients(spec, Batch(*row), inputs, separate=False)
        gradients = [
            tf.zeros(v.shape, v.dtype) if g is None else tf.cast(tf.convert_to_tensor(g), v.dtype)
            for v, g in zip(spec.model.trainable_variables, sums.gradients, strict=True)
        ]
        return [tf.convert_to_tensor(t) for t in fold(gradients)]

    of_chunk, specs = chunk_function(of_row, batch)
    return RowGradients(of_chunk, [(t.dtype, t.shape.as_list()) for t in specs], size)


def chunk_function(
    of_row: Callable[[Any, tf.Tensor], list[tf.Tensor]], batch: Tensors
) -> tuple[Callable[[Any], list[tf.Tensor]], list[tf.TensorSpec]]:
    """Return a function of a chunk of rows, and the specs of what it returns for one row.

    Args:
        of_row: Function of a batch of one row and the row's number that returns tensors.
        batch: Structure of tensors `[rows, ...]` or None.

    Returns:
        A function of `(batch, row numbers)` that returns the tensors of `of_row` as `[rows, ...]`,
        and their specs without rows.

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
    kind = replica_kind(tf.distribute.get_strategy())
    vectorised = can_be_vectorised(traced.graph, kind)

    def of_chunk(part: Any) -> list[tf.Tensor]:
        rows, numbers = part
        elements = [numbers, *(t for t in tf.nest.flatten(rows) if t is not None)]
        if not vectorised:
            # Row by row, with some rows in parallel.
            return tf.map_fn(lambda row: of_tensors(*row), elements, fn_output_signature=specs)
        count = tf.shape(numbers)[0]
        if loops:  # of one row, the vectorised loop of LSTM fails: it is computed twice
            again = tf.maximum(2 - count, 0)
            elements = [tf.concat([tensor, tensor[:again]], 0) for tensor in elements]
        found = tf.vectorized_map(lambda row: of_tensors(*row), elements, warn=False)
        return [tensor[:count] for tensor in found] if loops else found

    return of_chunk, specs


def can_be_vectorised(graph: Any, kind: str = "CPU") -> bool:
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
