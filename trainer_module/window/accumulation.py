"""Accumulate the gradients of a window's micro-batches in one loop inside the graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import keras
import tensorflow as tf

from trainer_module.checks.batch import check_xla_types, count_rows
from trainer_module.checks.compiled import warn_compile_args_ignored
from trainer_module.checks.model import check_built, check_jit_compile, reject_custom_train_step
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import (
    Gradient,
    LossLike,
    Tensors,
    Variable,
    map_present,
    present_leaves,
    with_leaves,
)
from trainer_module.devices.replicas import replica_kind
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.describe import Description, check_rows, describe
from trainer_module.window.gradient_sum import (
    AddedLosses,
    GradientSum,
    default_added_losses,
    pass_squares,
)
from trainer_module.window.micro_batch import MicroBatchGradients, micro_batch_gradients
from trainer_module.window.spec import Batch, Index, StepInputs, WindowSpec, plan_passes
from trainer_module.window.trace import phase_scope


class _MicroBatchFunction(Protocol):
    """A function that computes the sums of one micro-batch, such as `micro_batch_gradients`."""

    def __call__(
        self, spec: WindowSpec, batch: Batch, inputs: StepInputs, *, separate: bool
    ) -> MicroBatchGradients:
        """Return the sums; see `micro_batch_gradients`."""
        ...


@naming_replacements()
def accumulate_gradients(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    micro_batch_size: int,
    jit_compile: bool = False,
    added_losses: AddedLosses | None = None,
    random_position: Sequence[Index] = (),
    loss_scale: tf.Tensor | None = None,
    expected_rows: int | None = None,
) -> GradientSum:
    """Return the sums over all rows, with the activations of one micro-batch in memory at a time.

    Small micro-batches are merged up to 128 MiB, on a GPU up to 256 MiB (see `Passes`). Rows are
    never padded: the last pass has the remaining rows only, so that no synthetic row causes a NaN
    or counts in an activity regulariser. Call it inside a `tf.function`.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`, a Keras loss or its
            name (see `weighted_loss`).
        features: Tensor or structure of tensors `[rows, ...]`; rows may be 0.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]`, at least 0; None: 1 for each row.
        micro_batch_size: Number of rows of one micro-batch. If it is larger than `rows`, there is
            one micro-batch.
        jit_compile: Whether to compile full micro-batches with XLA, each as one pass. A shorter
            last micro-batch runs without XLA.
        added_losses: "mean" if the losses that layers pass to `add_loss` are means over rows, each
            pass then weighted by its number of rows; "sum" if they are sums over rows. None: the
            result of `default_added_losses`.
        random_position: Integers that identify the batch's position in the run, such as the step.
            Dropout masks are a function of the model's seeds, these integers and the pass.
        loss_scale: Factor of all gradients, for float16; the caller divides by it.
        expected_rows: Number of rows of most batches, if the shapes of the tensors do not have it.
            If one pass takes that many rows, the graph has a branch without the loops. The sums are
            also correct for any other number of rows.

    Raises:
        ValueError: micro_batch_size is below 1, the model is not built, a layer updates state when
            called, a feature is text and jit_compile is on, or the model overrides `compute_loss`.
            A model that overrides `train_step` is accepted, because its `train_step` may call this
            function.
    """
    if micro_batch_size < 1:
        raise ValueError(f"micro_batch_size={micro_batch_size}: use at least 1 row.")
    check_built(model)
    reject_custom_train_step(model, ("compute_loss",), by="accumulate_gradients")
    warn_compile_args_ignored(model, loss_fn)
    spec = WindowSpec(
        model=model,
        loss_fn=as_loss_function(loss_fn),
        added_losses=added_losses or default_added_losses(model),
        micro_batch_size=int(micro_batch_size),
        jit_compile=jit_compile,
        expected_rows=expected_rows,
    )
    batch = Batch(features, labels, sample_weight)
    description = describe(spec, batch)
    check_rows(spec, batch, description)
    return sum_window(spec, batch, StepInputs(random_position, loss_scale), description)


def sum_window(
    spec: WindowSpec,
    batch: Batch,
    inputs: StepInputs,
    description: Description,
    gradients: _MicroBatchFunction = micro_batch_gradients,
) -> GradientSum:
    """Return the sums over one replica's rows of a window; see `accumulate_gradients`."""
    rows = count_rows(*batch)
    zeros = _zeros(spec, description, inputs)

    def of_rows(index: Index, part: Batch) -> MicroBatchGradients:
        at = inputs._replace(random_position=(*inputs.random_position, index))
        with phase_scope("forward"):
            return gradients(spec, Batch(*part), at, separate=description.separate)

    of_full_rows = of_rows
    if spec.jit_compile:
        check_jit_compile(spec.model)
        check_xla_types(batch.features)
        of_full_rows = tf.function(of_rows, jit_compile=True, autograph=False)
    # XLA compiles single micro-batches: if four were merged, nothing in a window of three
    # micro-batches would be compiled.
    plan = plan_passes(
        description.bytes_per_row * spec.micro_batch_size,
        kind=replica_kind(tf.distribute.get_strategy()),
        merge_micro_batches=not spec.jit_compile and inputs.measures_noise is None,
        has_loops=description.has_loops,
        concurrent_passes=spec.placement.concurrent_passes,
    )
    size = spec.micro_batch_size * plan.micro_batches
    full = rows // size

    def add(total: GradientSum, sums: MicroBatchGradients, count: tf.Tensor | int) -> GradientSum:
        with phase_scope("backward"):
            count = tf.cast(count, zeros.rows.dtype)
            return _add(total, sums, count, spec, inputs.measures_noise)

    def add_full_pass(k: Index, total: GradientSum) -> GradientSum:
        # A static number of rows, so that the shapes in the loop are constants.
        part = _rows_between(batch, k * size, (k + 1) * size, size)
        with phase_scope("compiled") if spec.jit_compile else contextlib.nullcontext():
            sums = of_full_rows(k, part)
        return add(total, sums, size)

    def add_ragged_rest(_: Index, total: GradientSum) -> GradientSum:
        part = _rows_between(batch, full * size, rows, None)
        return add(total, of_rows(full, part), rows - full * size)

    def many_passes() -> GradientSum:
        total = _loop(full, add_full_pass, zeros, parallel_passes=plan.parallel_passes)
        has_rest = tf.cast(rows % size > 0, tf.int32)
        return _loop(has_rest, add_ragged_rest, total, parallel_passes=1)

    def one_pass() -> list[tf.Tensor]:
        sums = of_rows(0, batch)
        with phase_scope("backward"):
            sums = _with_tables(sums, zeros)
        return present_leaves(add(zeros, sums, rows))

    known = present_leaves(batch)[0].shape[0]
    if not spec.jit_compile and known is not None and 0 < known <= size:
        return with_leaves(zeros, one_pass())
    if spec.jit_compile or spec.expected_rows is None or spec.expected_rows > size:
        return many_passes()

    # A branch that is not taken costs time too, because the executor visits each of its operations.
    # A function that is not inlined is one operation.
    otherwise = tf.function(
        lambda: present_leaves(many_passes()),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    is_one = tf.logical_and(rows > 0, rows <= size)
    return with_leaves(zeros, tf.cond(is_one, one_pass, otherwise))


def _rows_between(batch: Batch, start: Index, stop: Index, count: int | None) -> Batch:
    """Return rows of a batch; `count` is their number, or None if it is not static."""
    with phase_scope("forward"):
        return map_present(lambda t: tf.ensure_shape(t[start:stop], [count, *t.shape[1:]]), batch)


def _zeros(spec: WindowSpec, description: Description, inputs: StepInputs) -> GradientSum:
    def zeros(present: Sequence[bool], first: list[int]) -> list[tf.Tensor | None]:
        def zero(variable: Variable, has: bool) -> tf.Tensor | None:
            if not has:
                return None
            wide = variable.dtype == "float64"
            return tf.zeros([*first, *variable.shape], tf.float64 if wide else tf.float32)

        return spec.placement.map(zero, spec.model.trainable_variables, present)

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
        squares=None if inputs.measures_noise is None else tf.zeros([2], scalar.dtype),
    )


def _loop(
    count: tf.Tensor,
    body: Callable[[Index, GradientSum], GradientSum],
    total: GradientSum,
    *,
    parallel_passes: int,
) -> GradientSum:
    """Run `total = body(k, total)` for k < count in a graph loop."""

    def step(k: tf.Tensor, flat: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return k + 1, present_leaves(body(k, with_leaves(total, flat)))

    _, flat = tf.while_loop(
        lambda k, _: k < count,
        step,
        (tf.constant(0), present_leaves(total)),
        parallel_iterations=parallel_passes,
    )
    return with_leaves(total, flat)


def _add(
    total: GradientSum,
    part: MicroBatchGradients,
    rows: tf.Tensor,
    spec: WindowSpec,
    measures_noise: tf.Tensor | None,
) -> GradientSum:
    dtype = total.numerator.dtype
    added, added_gradients = total.added_loss, total.added_gradients
    added_rows = total.added_rows
    if added is not None and added_gradients is not None:
        assert part.added_loss is not None
        assert part.added_gradients is not None
        assert added_rows is not None
        is_mean = spec.added_losses == "mean"
        factor = rows if is_mean else tf.ones([], dtype)
        added_rows += rows if is_mean else tf.zeros([], dtype)
        added += tf.cast(part.added_loss, dtype) * factor
        accumulate = functools.partial(_accumulate, factor=factor)
        added_gradients = spec.placement.map(accumulate, added_gradients, part.added_gradients)
    squares = total.squares
    if squares is not None and measures_noise is not None:
        squares += pass_squares(part.gradients, rows, measures_noise, squares.dtype)
    return GradientSum(
        numerator=total.numerator + tf.cast(part.numerator, dtype),
        denominator=total.denominator + tf.cast(part.denominator, dtype),
        rows=total.rows + rows,
        gradients=spec.placement.map(_accumulate, total.gradients, part.gradients),
        added_loss=added,
        added_gradients=added_gradients,
        added_rows=added_rows,
        squares=squares,
    )


def _accumulate(
    total: tf.Tensor | None, gradient: Gradient, factor: tf.Tensor | None = None
) -> tf.Tensor | None:
    if total is None:
        return None
    indexed = isinstance(gradient, tf.IndexedSlices)

    def term(values: tf.Tensor) -> tf.Tensor:
        values = tf.cast(values, total.dtype)
        if values.shape.rank == total.shape.rank and not indexed:
            # The trace loses axes of size 1 of a kernel that was multiplied with rows of sequences.
            values.set_shape(total.shape)
        return values if factor is None else values * tf.cast(factor, total.dtype)

    if not indexed:
        return total + term(tf.convert_to_tensor(gradient))
    table, looked_up = total.shape[0], gradient.indices.shape[0]
    if looked_up is not None and table <= looked_up:
        # For a small table, adding the whole table is several times as fast as a scatter.
        return total + term(_table(gradient, total))
    # Add only the rows that the micro-batch looked up: the table may be far larger.
    return tf.tensor_scatter_nd_add(total, gradient.indices[:, tf.newaxis], term(gradient.values))


def _table(gradient: Gradient, total: tf.Tensor) -> tf.Tensor:
    """Return the gradients of looked-up rows as a dense table in the dtype of the sums."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.cast(gradient, total.dtype)
    values = tf.cast(gradient.values, total.dtype)
    return tf.math.unsorted_segment_sum(values, gradient.indices, total.shape[0])


def _with_tables(part: MicroBatchGradients, zeros: GradientSum) -> MicroBatchGradients:
    """Return a window's only pass with dense gradients: faster than a scatter into zeros."""

    def tables(gradients: list[Gradient], zeros: list[Gradient]) -> list[Gradient]:
        pairs = zip(gradients, zeros, strict=True)
        return [None if zero is None else _table(g, zero) for g, zero in pairs]

    if part.added_gradients is not None and zeros.added_gradients is not None:
        part = part._replace(added_gradients=tables(part.added_gradients, zeros.added_gradients))
    return part._replace(gradients=tables(part.gradients, zeros.gradients))
