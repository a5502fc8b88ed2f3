"""Compute the gradient of one micro-batch as a pure function of the model's variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.model import computes_in_float16, reject_updates
from trainer_module.common.layers import replaced_calls
from trainer_module.common.tensors import Gradient, VariableValues
from trainer_module.losses.weighted_loss import loss_sums
from trainer_module.window.batch_norm import batch_norm_calls, ghost_layers
from trainer_module.window.spec import Batch, Index, StepInputs, WindowSpec
from trainer_module.window.trace import is_compiled_by_xla, phase_scope, window_forward_pass

# Number of draws of one layer in a micro-batch before two micro-batches share a key.
_DRAWS_PER_MICRO_BATCH = 1024


class MicroBatchGradients(NamedTuple):
    """The sums of one micro-batch and their gradients, as in `GradientSum`.

    Attributes:
        numerator, denominator: Scalars; `[outputs]` if each output has a separate Σ w_i.
        gradients: With an axis of outputs in front only if `separate` is true. For a model that
            computes in float16 the dtype is float32.
        added_loss: None without such losses.
        added_gradients: None without such losses or if `separate` is false.
        recorded: The same gradients by the tensors of `record`.
        statistics: empty without `batch_norm="ghost"`.
    """

    numerator: tf.Tensor
    denominator: tf.Tensor
    gradients: list[Gradient]
    added_loss: tf.Tensor | None
    added_gradients: list[Gradient] | None
    recorded: Sequence[Gradient] = ()
    statistics: tuple[tf.Tensor, ...] = ()


# Records tensors of a forward pass, which the tape shall watch.
_Recorder = Callable[[tf.GradientTape], contextlib.AbstractContextManager[Sequence[tf.Tensor]]]


def micro_batch_gradients(
    spec: WindowSpec,
    batch: Batch,
    inputs: StepInputs,
    *,
    separate: bool,
    record: _Recorder = lambda tape: contextlib.nullcontext(()),
) -> MicroBatchGradients:
    """Return the sums of one micro-batch and their gradients, without changing a variable.

    The largest float16 number is 65,504. For models that compute in float16, the gradient of the
    micro-batch's mean is computed, as in Keras, and multiplied to a sum in float32. So overflow
    does not depend on the number of rows.

    Args:
        spec: Model and loss.
        batch: Rows `[micro_batch, ...]`.
        inputs: Random position of this micro-batch, loss scale and values of variables. The loss
            scale multiplies the gradients, not the returned sums.
        separate: Whether to return the gradients of added losses too, and separate gradients for
            each output that has a separate Σ w_i. If false, the gradients are those of the sum over
            outputs. If true, a loop in the model keeps everything that each iteration computes, not
            only what one gradient needs.
        record: Returns the context of the forward pass and, in it, a list of tensors that it fills.

    Raises:
        ValueError: A layer updates state when called, as BatchNormalization does.
    """
    with batch_norm_calls(spec.model, spec.batch_norm) as sum_statistics:
        return _gradients(spec, batch, inputs, sum_statistics, separate=separate, record=record)


def _gradients(
    spec: WindowSpec,
    batch: Batch,
    inputs: StepInputs,
    sum_statistics: Callable[[], tuple[tf.Tensor, ...]],
    *,
    separate: bool,
    record: _Recorder,
) -> MicroBatchGradients:
    model, values = spec.model, inputs.values
    given = {id(variable): value for variable, value in values}
    variables = [given.get(id(v), v.value) for v in model.trainable_variables]
    seeds = [v for v in model.variables if v.name == "seed_generator_state"]
    mapping = [
        *values,
        *((s, _seed_at(given.get(id(s), s.value), inputs.random_position)) for s in seeds),
    ]
    # Seeds are inputs, and updates are checked but not applied. So the loop's body has no side
    # effect, runs under XLA, and is the same on every replica.
    scope = keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False)
    with tf.GradientTape(persistent=separate) as tape:
        if values:
            tape.watch(variables)
        with scope, window_forward_pass(), record(tape) as tensors, _unknown_ids_as_nan(model):
            outputs = model(batch.features, training=True)
        statistics = sum_statistics()
        numerator, denominator = loss_sums(spec.loss_fn, batch.labels, outputs, batch.sample_weight)
        added = _sum([upcast_to_float32(loss) for loss in scope.losses]) if scope.losses else None
        of_outputs = numerator.shape.rank and separate
        total = numerator if of_outputs else tf.reduce_sum(numerator)
        divisor, added_divisor = None, None
        if computes_in_float16(model):
            count = denominator if of_outputs else tf.reduce_sum(denominator)
            is_positive = tf.logical_and(count > 0, tf.math.is_finite(count))
            divisor = tf.stop_gradient(tf.where(is_positive, count, tf.ones_like(count)))
            if spec.added_losses == "sum":
                rows = tf.shape(tf.nest.flatten(batch.features)[0])[0]
                added_divisor = tf.maximum(tf.cast(rows, tf.float32), 1)
        scaled = _scaled(total, inputs.loss_scale, divisor)
        targets = tf.unstack(scaled) if of_outputs else []
        if added is not None and separate:
            scaled_added = _scaled(added, inputs.loss_scale, added_divisor)
        else:
            scaled_added = None
    ghosts = ghost_layers(model, spec.batch_norm)
    moving = [v for x in ghosts for v in (x.moving_mean, x.moving_variance)]
    reject_updates(model, scope, mapping, [*seeds, *moving])

    def gradients(target: tf.Tensor, divisor: tf.Tensor | None) -> list[Gradient]:
        with phase_scope("backward"):
            return [_times(g, divisor) for g in tape.gradient(target, [*variables, *tensors])]

    if targets:
        divisors = [None] * len(targets) if divisor is None else tf.unstack(divisor)
        of_rows = _stacked([gradients(t, d) for t, d in zip(targets, divisors, strict=True)])
    else:
        of_rows = gradients(scaled, divisor)
    return MicroBatchGradients(
        numerator=numerator,
        denominator=denominator,
        gradients=of_rows[: len(variables)],
        added_loss=added,
        added_gradients=(None if scaled_added is None else gradients(scaled_added, added_divisor)),
        recorded=of_rows[len(variables) :],
        statistics=statistics,
    )


@contextlib.contextmanager
def _unknown_ids_as_nan(model: keras.Model) -> Iterator[None]:
    """Make what an Embedding returns for an id that it does not have NaN, where XLA compiles.

    XLA would return its first or last row; without XLA, TensorFlow raises an error on a CPU.
    """

    def checked(layer: keras.layers.Embedding, call: Callable[..., tf.Tensor]) -> object:
        def look_up(ids: tf.Tensor) -> tf.Tensor:
            found, ids = call(ids), tf.cast(ids, tf.int64)
            size = layer.input_dim  # Keras counts negative ids from the end
            is_known = tf.logical_and(ids >= -size, ids < size)[..., tf.newaxis]
            return tf.where(is_known, found, tf.constant(float("nan"), found.dtype))

        return look_up

    usual = keras.layers.Embedding.call
    tables = [x for x in model._flatten_layers() if getattr(type(x), "call", None) is usual]
    with replaced_calls((x, checked(x, x.call)) for x in tables if is_compiled_by_xla()):
        yield


def _stacked(of_outputs: list[list[Gradient]]) -> list[Gradient]:
    """Return the gradients of each output as one tensor `[outputs, ...]` per variable."""

    def stack(gradients: tuple[Gradient, ...]) -> Gradient:
        present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        if not present:
            return None
        zeros = tf.zeros_like(present[0])
        rest = iter(present)
        return tf.stack([zeros if g is None else next(rest) for g in gradients])

    return [stack(gradients) for gradients in zip(*of_outputs, strict=True)]


def regularisation_gradients(
    model: keras.Model, values: VariableValues = ()
) -> tuple[tf.Tensor | None, list[Gradient]]:
    """Return the sum of the variables' regularisers and its gradients."""
    regularised = [v for v in model.trainable_variables if v.regularizer is not None]
    if not regularised:
        return None, [None] * len(model.trainable_variables)
    given = {id(variable): value for variable, value in values}
    variables = [given.get(id(v), v.value) for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        if values:
            tape.watch(variables)
        with keras.StatelessScope(values, initialize_variables=False):
            total = _sum([upcast_to_float32(v.regularizer(v)) for v in regularised])
    return total, tape.gradient(total, variables)


def upcast_to_float32(x: tf.Tensor) -> tf.Tensor:
    """Return a tensor, cast to float32 if its dtype is float16 or bfloat16."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


def _sum(scalars: list[tf.Tensor]) -> tf.Tensor:
    """Return the sum of scalars, in float64 if one of them is float64."""
    wide = any(scalar.dtype == tf.float64 for scalar in scalars)
    return tf.add_n([tf.cast(s, tf.float64) if wide else s for s in scalars])


def _scaled(x: tf.Tensor, factor: tf.Tensor | None, divisor: tf.Tensor | None) -> tf.Tensor:
    if factor is not None:
        x *= tf.cast(factor, x.dtype)
    return x if divisor is None else x / tf.cast(divisor, x.dtype)


def _times(gradient: Gradient, factor: tf.Tensor | None) -> Gradient:
    """Return a gradient (dense or IndexedSlices) times a scalar, in at least 32 bits."""
    if gradient is None or factor is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = _times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    gradient = upcast_to_float32(gradient)
    return gradient * tf.cast(factor, gradient.dtype)


def _seed_at(state: tf.Tensor, position: Sequence[Index]) -> tf.Tensor:
    seed = tf.cast(tf.convert_to_tensor(state), tf.int64)
    fold = tf.random.experimental.stateless_fold_in
    for index in position:
        seed = fold(seed, tf.cast(index, tf.int64) * _DRAWS_PER_MICRO_BATCH)
    return seed
