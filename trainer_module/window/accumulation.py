"""The window: gradients of many micro-batches, summed in one loop inside the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.devices.strategies import replica_kind
from trainer_module.stages.own_gradient import on_device
from trainer_module.stages.staged_model import refuse_xla, stages_of, variable_devices
from trainer_module.window.batch_checks import check_xla_types, count_rows
from trainer_module.window.describe import Description, describe
from trainer_module.window.gradient_sum import AddedLosses, GradientSum, default_added_losses
from trainer_module.window.loss import as_loss_function
from trainer_module.window.micro_batch import (
    MicroBatchGradients,
    Values,
    micro_batch_gradients,
)
from trainer_module.window.own_steps import refuse_own_steps, tell_what_compile_said
from trainer_module.window.passes import plan_passes


def accumulate_gradients(
    model: keras.Model,
    loss_fn: Any,
    features: Any,
    labels: Any,
    sample_weight: Any = None,
    *,
    micro_batch_size: int,
    jit_compile: bool = False,
    added_losses: AddedLosses | None = None,
    random_position: Sequence[Any] = (),
    loss_scale: tf.Tensor | None = None,
    description: Description | None = None,
    expected_rows: int | None = None,
    values: Values = (),
) -> GradientSum:
    """Returns the sums over all rows, holding one micro-batch's activations at a time.

    Small micro-batches are taken together, while they hold less than 128 MiB, on a GPU 256
    (see `Passes`). Rows are never padded: the last pass is as short as it is, so that no made-up
    row can bring a NaN or enter an activity regulariser. Call it inside a `tf.function`.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`, a Keras loss or its
            name (see `weighted_loss`).
        features: Tensor or structure of tensors `[rows, ...]`; rows may be 0.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]`, at least 0, or None for 1.
        micro_batch_size: Rows of one micro-batch; larger than `rows` is one micro-batch.
        jit_compile: Compile full micro-batches by XLA, each a pass of its own (the short last one
            runs without).
        added_losses: What layers give to `add_loss`: a "mean" over the rows they see (each pass
            counts by its rows), or a "sum" over them. None is what `default_added_losses` says.
        random_position: Integers that say where in the run the batch stands, such as the step: the
            dropout masks are a function of the model's seeds, of them, and of the pass.
        loss_scale: Factor of all gradients, for float16; the caller divides by it.
        description: The result of `describe`, when the caller has it already.
        expected_rows: Rows of most batches, where the tensors' shapes do not say it: if they are
            one pass, the graph has a way around the loops. The sums of any other number of rows are
            right too.
        values: Tensors to take for the values of the model's variables, (variable, tensor) of each,
            where the variables themselves may change meanwhile; none: they are read.

    Raises:
        ValueError: micro_batch_size below 1, a layer that updates state when called, text for XLA,
            or a model with a `compute_loss` of its own. A `train_step` of its own may be what calls
            this function.
    """
    if micro_batch_size < 1:
        raise ValueError(f"micro_batch_size={micro_batch_size}: use at least 1 row.")
    micro_batch_size = int(micro_batch_size)
    refuse_own_steps(model, ("compute_loss",), by="accumulate_gradients")
    tell_what_compile_said(model, loss_fn)
    loss_fn = as_loss_function(loss_fn)
    added_losses = added_losses or default_added_losses(model)
    data = (features, labels, sample_weight)
    rows = count_rows(*data)
    if description is None:
        description = describe(
            model, loss_fn, features, labels, sample_weight, added_losses=added_losses
        )

    def micro_batch(index: Any, part: Any) -> MicroBatchGradients:
        return micro_batch_gradients(
            model,
            loss_fn,
            *part,
            random_position=(*random_position, index),
            loss_scale=loss_scale,
            added_losses=added_losses,
            separate=description.separate,
            values=values,
        )

    zeros = _zeros(model, description)
    devices = variable_devices(model)

    def add(total: GradientSum, index: Any, part: Any, inner: Any) -> GradientSum:
        count = tf.cast(tf.shape(tf.nest.flatten(part)[0])[0], zeros.rows.dtype)
        return _add(total, inner(index, part), count, added_losses, devices)

    def slice_of(start: Any, stop: Any, static: int | None) -> Any:
        def cut(tensor: Any) -> Any:
            if tensor is None:
                return None
            part = tensor[start:stop]
            return tf.ensure_shape(part, [static, *tensor.shape[1:]])

        return tf.nest.map_structure(cut, data)

    inner = micro_batch
    if jit_compile:
        refuse_xla(model)
        check_xla_types(features)
        inner = tf.function(micro_batch, jit_compile=True, autograph=False)
    # XLA compiles one micro-batch: in fours, a window of three would have nothing compiled.
    plan = plan_passes(
        description.bytes_per_row * micro_batch_size,
        kind=replica_kind(tf.distribute.get_strategy()),
        together=not jit_compile,
        turns=description.has_loops,
        stages=stages_of(model),
    )
    size = micro_batch_size * plan.micro_batches

    def many_passes() -> GradientSum:
        # Full passes have a static number of rows, so that the shapes in their loop are constants;
        # the short last one, if any, is a loop of its own with one iteration.
        full = rows // size
        total = _loop(
            full,
            lambda k, sums: add(sums, k, slice_of(k * size, (k + 1) * size, size), inner),
            zeros,
            at_once=plan.at_once,
        )
        rest = tf.cast(rows % size > 0, tf.int32)
        return _loop(
            rest,
            lambda _, sums: add(sums, full, slice_of(full * size, rows, None), micro_batch),
            total,
            at_once=1,
        )

    def one_pass() -> list[Any]:
        part = _with_tables(micro_batch(0, data), zeros)
        return _flat(_add(zeros, part, tf.cast(rows, zeros.rows.dtype), added_losses, devices))

    known = next(t for t in tf.nest.flatten(data) if t is not None).shape[0]
    if not jit_compile and known is not None and 0 < known <= size:
        return _like(zeros, one_pass())
    if jit_compile or expected_rows is None or expected_rows > size:
        return many_passes()

    # The branch not taken costs time too: the executor visits each of its operations to find that
    # there is nothing to do. A function that is not inlined is one operation.
    otherwise = tf.function(
        lambda: _flat(many_passes()),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    is_one = tf.logical_and(rows > 0, rows <= size)
    return _like(zeros, tf.cond(is_one, one_pass, otherwise))


def _zeros(model: keras.Model, description: Description) -> GradientSum:
    def zeros(present: Sequence[bool], first: list[int]) -> list[Any]:
        def zero(variable: Any) -> tf.Tensor:
            wide = variable.dtype == "float64"
            return tf.zeros([*first, *variable.shape], tf.float64 if wide else tf.float32)

        found = []
        for variable, device, has in zip(
            model.trainable_variables, variable_devices(model), present, strict=True
        ):
            with on_device(device):
                found.append(zero(variable) if has else None)
        return found

    outputs = [] if description.outputs is None else [description.outputs]
    sums = tf.zeros(outputs, description.accumulator_dtype)
    scalar = tf.zeros([], description.accumulator_dtype)
    has_added = description.has_added_gradient
    return GradientSum(
        numerator=sums,
        denominator=sums,
        rows=scalar,
        gradients=zeros(description.has_gradient, outputs),
        added_loss=None if has_added is None else scalar,
        added_gradients=None if has_added is None else zeros(has_added, []),
        added_rows=None if has_added is None else scalar,
    )


def _loop(count: Any, body: Any, total: GradientSum, *, at_once: int) -> GradientSum:
    """Runs `total = body(k, total)` for k < count, in the graph."""

    def step(k: Any, flat: list[Any]) -> tuple[Any, list[Any]]:
        return k + 1, _flat(body(k, _like(total, flat)))

    _, flat = tf.while_loop(
        lambda k, _: k < count,
        step,
        (tf.constant(0), _flat(total)),
        parallel_iterations=at_once,
    )
    return _like(total, flat)


def _flat(total: GradientSum) -> list[Any]:
    return [tensor for tensor in tf.nest.flatten(total) if tensor is not None]


def _like(total: GradientSum, flat: list[Any]) -> GradientSum:
    tensors = iter(flat)
    return tf.nest.map_structure(lambda t: None if t is None else next(tensors), total)


def _add(
    total: GradientSum,
    part: MicroBatchGradients,
    rows: tf.Tensor,
    added_losses: AddedLosses,
    devices: Sequence[str | None],
) -> GradientSum:
    def plus(sums: list[Any], gradients: list[Any], factor: Any = None) -> list[Any]:
        found = []
        for device, one, gradient in zip(devices, sums, gradients, strict=True):
            with on_device(device):
                found.append(_accumulate(one, gradient, factor))
        return found

    dtype = total.numerator.dtype
    added, added_gradients = total.added_loss, total.added_gradients
    added_rows = total.added_rows
    if added is not None and added_gradients is not None:
        assert part.added_loss is not None
        assert part.added_gradients is not None
        assert added_rows is not None
        factor = rows if added_losses == "mean" else tf.ones([], dtype)
        added_rows += rows if added_losses == "mean" else tf.zeros([], dtype)
        added += tf.cast(part.added_loss, dtype) * factor
        added_gradients = plus(added_gradients, part.added_gradients, factor)
    return GradientSum(
        numerator=total.numerator + tf.cast(part.numerator, dtype),
        denominator=total.denominator + tf.cast(part.denominator, dtype),
        rows=total.rows + rows,
        gradients=plus(total.gradients, part.gradients),
        added_loss=added,
        added_gradients=added_gradients,
        added_rows=added_rows,
    )


def _accumulate(total: Any, gradient: Any, factor: tf.Tensor | None = None) -> Any:
    if total is None:
        return None
    indexed = isinstance(gradient, tf.IndexedSlices)

    def term(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, total.dtype)
        if values.shape.rank == total.shape.rank and not indexed:
            # The trace forgets axes of 1 of a kernel that was multiplied with rows of sequences.
            values.set_shape(total.shape)
        return values if factor is None else values * tf.cast(factor, total.dtype)

    if not indexed:
        return total + term(tf.convert_to_tensor(gradient))
    table, looked_up = total.shape[0], gradient.indices.shape[0]
    if looked_up is not None and table <= looked_up:
        # A small table: adding all of it is several times as fast as scattering into it.
        return total + term(_table(gradient, total))
    # Only the rows that the micro-batch looked up: the table may be far larger than they are.
    return tf.tensor_scatter_nd_add(total, gradient.indices[:, tf.newaxis], term(gradient.values))


def _table(gradient: Any, total: tf.Tensor) -> tf.Tensor:
    """Makes the whole table of gradients of looked-up rows, in the dtype of the sums."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.cast(gradient, total.dtype)
    values = tf.cast(gradient.values, total.dtype)
    return tf.math.unsorted_segment_sum(values, gradient.indices, total.shape[0])


def _with_tables(part: MicroBatchGradients, zeros: GradientSum) -> MicroBatchGradients:
    """For a window's only pass: making whole tables is faster than scattering into zeros."""

    def tables(gradients: list[Any], zeros: list[Any]) -> list[Any]:
        pairs = zip(gradients, zeros, strict=True)
        return [None if zero is None else _table(g, zero) for g, zero in pairs]

    if part.added_gradients is not None and zeros.added_gradients is not None:
        part = part._replace(added_gradients=tables(part.added_gradients, zeros.added_gradients))
    return part._replace(gradients=tables(part.gradients, zeros.gradients))
