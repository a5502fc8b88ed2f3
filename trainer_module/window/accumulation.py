"""The window: gradients of many micro-batches, summed in one loop inside the graph."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from trainer_module.devices.strategies import replica_kind
from trainer_module.window.batch_checks import check_batch, check_xla_types, count_rows
from trainer_module.window.loss import LossFunction, as_loss_function
from trainer_module.window.micro_batch import (
    MicroBatchGradients,
    micro_batch_gradients,
    refuse_assignments,
    regularisation_gradients,
)
from trainer_module.window.own_steps import refuse_own_steps, tell_what_compile_said
from trainer_module.window.passes import plan_passes
from trainer_module.window.random_ops import draws_random_numbers, refuse_stateful_draws
from trainer_module.window.row_independence import check_rows_are_independent
from trainer_module.window.trace_bytes import bytes_per_row, has_loops

AddedLosses = Literal["mean", "sum"]


class GradientSum(NamedTuple):
    """Sums over rows i of a batch; `first + second` is that of the rows of both.

        g = gradients / denominator + ∇R + ∇A          (see `mean_gradients`)
        A = added_loss / max(added_rows, 1)

    Where outputs have a Σ w_i each (see `weighted_loss`), numerator, denominator and gradients have
    a first axis `[outputs]`, and the quotients are summed over it.

    Attributes:
        numerator: Σ w_i l_i, scalar, float32 (float64 for a float64 model), as are all others.
        denominator: Σ w_i, scalar.
        rows: Number of rows, whatever their weights, scalar.
        gradients: Σ w_i ∇l_i, one dense tensor per trainable variable; None where the loss does
            not depend on the variable.
        added_loss: What layers gave to `add_loss` (activity regularisers among them), of each pass
            times its rows if it is a mean over rows; None for a model without.
        added_gradients: Its gradients, one per trainable variable; None for a model without.
        added_rows: The rows that `added_loss` is to be divided by, 0 if it is a sum over rows; None
            for a model without.
    """

    numerator: tf.Tensor
    denominator: tf.Tensor
    rows: tf.Tensor
    gradients: list[Any]
    added_loss: tf.Tensor | None = None
    added_gradients: list[Any] | None = None
    added_rows: tf.Tensor | None = None

    def __add__(self, other: GradientSum) -> GradientSum:  # pyright: ignore
        """Returns the sums over the rows of both, of the same model and loss."""
        return tf.nest.map_structure(lambda a, b: None if a is None else a + b, self, other)


class Description(NamedTuple):
    """What tracing one micro-batch says about a model, before the loop is built.

    Attributes:
        has_gradient: Per trainable variable, whether the loss depends on it.
        has_added_gradient: The same for what layers give to `add_loss`; None without any.
        accumulator_dtype: Of the scalar sums.
        outputs: How many outputs have a Σ w_i each; None where one is that of all.
        bytes_per_row: At most what a row's activations and their gradients take; infinite where
            the trace does not tell, as with loops that turn as often as the data says.
            An axis of unknown length counts as 1.
        has_loops: Whether there are loops in the model, as in recurrent layers.
    """

    has_gradient: tuple[bool, ...]
    has_added_gradient: tuple[bool, ...] | None
    accumulator_dtype: tf.DType
    outputs: int | None
    bytes_per_row: float
    has_loops: bool

    @property
    def separate(self) -> bool:
        """Whether a micro-batch has several gradients."""
        return self.has_added_gradient is not None or self.outputs is not None


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
        )

    zeros = _zeros(model, description)

    def add(total: GradientSum, index: Any, part: Any, inner: Any) -> GradientSum:
        count = tf.cast(tf.shape(tf.nest.flatten(part)[0])[0], zeros.rows.dtype)
        return _add(total, inner(index, part), count, added_losses)

    def slice_of(start: Any, stop: Any, static: int | None) -> Any:
        def cut(tensor: Any) -> Any:
            if tensor is None:
                return None
            part = tensor[start:stop]
            return tf.ensure_shape(part, [static, *tensor.shape[1:]])

        return tf.nest.map_structure(cut, data)

    inner = micro_batch
    if jit_compile:
        check_xla_types(features)
        inner = tf.function(micro_batch, jit_compile=True, autograph=False)
    # XLA compiles one micro-batch: in fours, a window of three would have nothing compiled.
    plan = plan_passes(
        description.bytes_per_row * micro_batch_size,
        kind=replica_kind(tf.distribute.get_strategy()),
        together=not jit_compile,
        turns=description.has_loops,
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
        return _flat(_add(zeros, part, tf.cast(rows, zeros.rows.dtype), added_losses))

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


def describe(
    model: keras.Model,
    loss_fn: LossFunction,
    features: Any,
    labels: Any,
    sample_weight: Any = None,
    *,
    added_losses: AddedLosses,
) -> Description:
    """Returns which sums a model's window has, by tracing one micro-batch of the data's shapes.

    Raises:
        ValueError: The loss depends on no variable, rows influence each other, or random numbers
            are drawn that no seed decides.
    """
    check_batch(features, labels, sample_weight)
    wide = any(variable.dtype == "float64" for variable in model.trainable_variables)
    signature = _signature(features, labels, sample_weight)
    trace = functools.partial(_trace, model, loss_fn, signature, added_losses=added_losses)
    sums, graph = trace(separate=False)
    numerator = sums.numerator
    if sums.added_loss is not None or numerator.shape.rank:
        sums, graph = trace(separate=True)
    gradients, added = sums.gradients, sums.added_gradients
    if all(gradient is None for gradient in (*gradients, *(added or ()))):
        raise ValueError(
            "the loss depends on no trainable variable: check that the model has trainable "
            "layers and that the loss function uses the outputs that it is given."
        )
    refuse_assignments(graph)
    refuse_stateful_draws(graph)
    check_rows_are_independent(
        model,
        loss_fn,
        signature,
        added_losses=added_losses,
        draws=draws_random_numbers(graph),
    )
    return Description(
        has_gradient=tuple(g is not None for g in gradients),
        has_added_gradient=None if added is None else tuple(g is not None for g in added),
        accumulator_dtype=tf.float64 if wide else tf.float32,
        outputs=numerator.shape[0] if numerator.shape.rank else None,
        bytes_per_row=bytes_per_row(graph),
        has_loops=has_loops(graph),
    )


def describe_shapes(
    description: Description,
    model: keras.Model,
    loss_fn: LossFunction,
    features: Any,
    labels: Any,
    sample_weight: Any = None,
    *,
    added_losses: AddedLosses,
) -> Description:
    """Returns a description for rows of other shapes: what a row of them takes is traced anew.

    What does not depend on the shapes is not asked again. Rows of an unknown length, of which a
    trace counts one element, take no less than those that were described before.
    """
    signature = _signature(features, labels, sample_weight)
    _, graph = _trace(
        model, loss_fn, signature, added_losses=added_losses, separate=description.separate
    )
    size = bytes_per_row(graph)
    specs = [spec for spec in tf.nest.flatten(signature) if spec is not None]
    if not all(spec.shape[1:].is_fully_defined() for spec in specs):
        size = max(size, description.bytes_per_row)
    return description._replace(bytes_per_row=size, has_loops=has_loops(graph))


def _signature(features: Any, labels: Any, sample_weight: Any) -> Any:
    def spec(tensor: Any) -> Any:
        if tensor is None:
            return None
        return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)

    return tf.nest.map_structure(spec, (features, labels, sample_weight))


def _trace(
    model: keras.Model,
    loss_fn: LossFunction,
    signature: Any,
    *,
    added_losses: AddedLosses,
    separate: bool,
) -> tuple[MicroBatchGradients, Any]:
    """Returns the sums of one micro-batch of such tensors, and the graph that makes them."""
    found: list[MicroBatchGradients] = []

    def probe(features: Any, labels: Any, sample_weight: Any) -> None:
        sums = micro_batch_gradients(
            model,
            loss_fn,
            features,
            labels,
            sample_weight,
            random_position=(0,),
            loss_scale=None,
            added_losses=added_losses,
            separate=separate,
        )
        found.append(sums)

    traced = tf.function(probe, autograph=False).get_concrete_function(*signature)
    return found[-1], traced.graph


def mean_gradients(total: GradientSum, model: keras.Model) -> tuple[tf.Tensor, list[Any]]:
    """Returns the loss and g of docs/design.md §4.1 from sums over the whole global batch.

        g = ( Σ_i w_i ∇l_i ) / ( Σ_i w_i )  +  ∇R

    R are the variables' regularisers and what layers gave to `add_loss`, each counted once. On a
    replica of several, `total` comes from `sum_over_replicas`, and what follows is an update by
    `apply_gradients`: Keras' own `apply` would add the equal g of all replicas up.

    Args:
        total: Sums over all micro-batches and replicas. With Σ w = 0 the first term is 0.
        model: The model, for its regularisers.

    Returns:
        The scalar loss, and one gradient per trainable variable (None where there is none).
    """
    loss = _quotient(total.numerator, total.denominator)
    gradients = [None if g is None else _quotient(g, total.denominator) for g in total.gradients]
    if total.added_loss is not None and total.added_gradients is not None:
        assert total.added_rows is not None
        rows = tf.maximum(total.added_rows, 1)
        loss += total.added_loss / rows
        gradients = [
            _plus(g, None if a is None else a / tf.cast(rows, a.dtype))
            for g, a in zip(gradients, total.added_gradients, strict=True)
        ]
    regularisation, slopes = regularisation_gradients(model)
    if regularisation is not None:
        loss += tf.cast(regularisation, loss.dtype)
        gradients = [_plus(g, s) for g, s in zip(gradients, slopes, strict=True)]
    return loss, gradients


def default_added_losses(model: keras.Model) -> AddedLosses:
    """Returns what Keras' own activity regularisers are, a mean or a sum over the rows they see.

    Keras 3 summed at first and divides by the rows in later releases: this version is asked. A
    model without them has "mean", which is also exact for losses that do not depend on the batch.
    """
    layers = model._flatten_layers()
    if not any(layer.activity_regularizer is not None for layer in layers):
        return "mean"
    return "mean" if _keras_divides_by_rows() else "sum"


@functools.cache
def _keras_divides_by_rows() -> bool:
    with tf.init_scope():
        layer = keras.layers.Activation("linear", activity_regularizer=keras.ops.sum)
        layer(tf.ones([2, 1]))
        return float(layer.losses[0]) == 1.0


def _quotient(sums: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """Returns Σ / Σ w, or the sum of those of all outputs; 0 where Σ w is 0."""
    denominator = tf.cast(denominator, sums.dtype)
    if denominator.shape.rank == 0:
        return tf.math.divide_no_nan(sums, denominator)
    axes = [-1] + [1] * (sums.shape.rank - 1)
    return tf.reduce_sum(tf.math.divide_no_nan(sums, tf.reshape(denominator, axes)), 0)


def _plus(a: Any, b: Any) -> Any:
    if a is None:
        return b if b is None else tf.convert_to_tensor(b)
    return a if b is None else a + tf.cast(tf.convert_to_tensor(b), a.dtype)


def _zeros(model: keras.Model, description: Description) -> GradientSum:
    def zeros(present: Sequence[bool], first: list[int]) -> list[Any]:
        def zero(variable: Any) -> tf.Tensor:
            wide = variable.dtype == "float64"
            return tf.zeros([*first, *variable.shape], tf.float64 if wide else tf.float32)

        variables = model.trainable_variables
        return [zero(v) if has else None for v, has in zip(variables, present, strict=True)]

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
    total: GradientSum, part: MicroBatchGradients, rows: tf.Tensor, added_losses: AddedLosses
) -> GradientSum:
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
        added_gradients = [
            _accumulate(a, g, factor)
            for a, g in zip(added_gradients, part.added_gradients, strict=True)
        ]
    return GradientSum(
        numerator=total.numerator + tf.cast(part.numerator, dtype),
        denominator=total.denominator + tf.cast(part.denominator, dtype),
        rows=total.rows + rows,
        gradients=[_accumulate(a, g) for a, g in zip(total.gradients, part.gradients, strict=True)],
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
