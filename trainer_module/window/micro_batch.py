"""The gradient of one micro-batch, as a pure function of the model's variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import keras
import tensorflow as tf

from trainer_module.stages.own_gradient import own_gradients
from trainer_module.window.loss import LossFunction, loss_sums

# What to take for variables' values: a window has one of each, wherever the variables are.
Values = Sequence[tuple[Any, tf.Tensor]]

# One layer may draw this many times within a micro-batch before two micro-batches share a key.
_DRAWS_PER_MICRO_BATCH = 1024


class MicroBatchGradients(NamedTuple):
    """What one micro-batch adds to its window.

    Attributes:
        numerator: Σ w_i l_i, scalar, or `[outputs]` where outputs have a Σ w_i each.
        denominator: Σ w_i, of the same shape.
        gradients: Σ w_i ∇l_i per trainable variable; None where the loss does not depend on it.
            `[outputs, *variable.shape]` where outputs have a Σ w_i each and that was asked for. Of
            a model that computes in float16 these are float32.
        added_loss: What layers gave to `add_loss` (activity regularisers among them), or None.
        added_gradients: The gradient of `added_loss`, or None; also if it was not asked for.
    """

    numerator: tf.Tensor
    denominator: tf.Tensor
    gradients: list[Any]
    added_loss: tf.Tensor | None
    added_gradients: list[Any] | None


def micro_batch_gradients(
    model: keras.Model,
    loss_fn: LossFunction,
    features: Any,
    labels: Any,
    sample_weight: Any,
    *,
    random_position: Sequence[Any],
    loss_scale: tf.Tensor | None,
    added_losses: Literal["mean", "sum"] = "mean",
    separate: bool,
    values: Values = (),
) -> MicroBatchGradients:
    """Returns the sums of one micro-batch and their gradients, changing no variable.

    In float16, which ends at 65,504, a gradient is that of the micro-batch's mean, as it is in
    Keras, and becomes a sum in float32: however many rows there are, it overflows no sooner.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        features: What the model takes, `[micro_batch, ...]` each.
        labels: `[micro_batch, ...]`, the structure that `loss_fn` expects.
        sample_weight: `[micro_batch]`, or None.
        random_position: Integers that say where in the run this micro-batch stands: dropout masks
            are a function of the model's seeds and of them.
        loss_scale: Factor of every gradient (not of the returned sums), or None.
        added_losses: Whether what layers give to `add_loss` is a mean or a sum over rows.
        separate: Whether to take the gradients of that too, and of each output that has a Σ w_i of
            its own; else those of all outputs' sum. A loop in the model then keeps all that each
            turn makes, in place of what one gradient needs.
        values: Tensors to take for the values of the model's variables, all of them or none: the
            gradients are those of the tensors then.

    Raises:
        ValueError: A layer updates state while it is called, as BatchNormalization does.
    """
    given = {id(variable): value for variable, value in values}
    variables = [given.get(id(v), v.value) for v in model.trainable_variables]
    seeds = _seed_states(model)
    mapping = [
        *values,
        *((s, _seed_at(given.get(id(s), s.value), random_position)) for s in seeds),
    ]
    # Seeds come from outside and updates are looked at, not applied: so the loop's body has no
    # side effect, runs under XLA, and is the same on every replica.
    scope = keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False)
    with tf.GradientTape(persistent=separate) as tape:
        if values:
            tape.watch(variables)
        with scope, own_gradients():
            outputs = model(features, training=True)
        numerator, denominator = loss_sums(loss_fn, labels, outputs, sample_weight)
        added = _sum([widened(loss) for loss in scope.losses]) if scope.losses else None
        of_outputs = numerator.shape.rank and separate
        total = numerator if of_outputs else tf.reduce_sum(numerator)
        divisor, added_divisor = None, None
        if computes_in_float16(model):
            count = denominator if of_outputs else tf.reduce_sum(denominator)
            divisor = tf.stop_gradient(_positive(count))
            if added_losses == "sum":
                rows = tf.shape(tf.nest.flatten(features)[0])[0]
                added_divisor = tf.maximum(tf.cast(rows, tf.float32), 1)
        scaled = _scaled(total, loss_scale, divisor)
        targets = tf.unstack(scaled) if of_outputs else []
        if added is not None and separate:
            scaled_added = _scaled(added, loss_scale, added_divisor)
        else:
            scaled_added = None
    _refuse_updates(model, scope, mapping, seeds)

    def gradients(target: Any, divisor: Any) -> list[Any]:
        return [_times(g, divisor) for g in tape.gradient(target, variables)]

    if targets:
        divisors = [None] * len(targets) if divisor is None else tf.unstack(divisor)
        of_rows = _stacked([gradients(t, d) for t, d in zip(targets, divisors, strict=True)])
    else:
        of_rows = gradients(scaled, divisor)
    return MicroBatchGradients(
        numerator=numerator,
        denominator=denominator,
        gradients=of_rows,
        added_loss=added,
        added_gradients=(None if scaled_added is None else gradients(scaled_added, added_divisor)),
    )


def _stacked(of_outputs: list[list[Any]]) -> list[Any]:
    """Returns the gradients of each output as one tensor `[outputs, ...]` per variable."""

    def stack(gradients: tuple[Any, ...]) -> Any:
        present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        if not present:
            return None
        zeros = tf.zeros_like(present[0])
        rest = iter(present)
        return tf.stack([zeros if g is None else next(rest) for g in gradients])

    return [stack(gradients) for gradients in zip(*of_outputs, strict=True)]


def regularisation_gradients(
    model: keras.Model, values: Values = ()
) -> tuple[tf.Tensor | None, list[Any]]:
    """Returns R, the sum of the variables' own regularisers, and ∇R; (None, Nones) without any."""
    regularised = [v for v in model.trainable_variables if v.regularizer is not None]
    if not regularised:
        return None, [None] * len(model.trainable_variables)
    given = {id(variable): value for variable, value in values}
    variables = [given.get(id(v), v.value) for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        if values:
            tape.watch(variables)
        with keras.StatelessScope(values, initialize_variables=False):
            total = _sum([widened(v.regularizer(v)) for v in regularised])
    return total, tape.gradient(total, variables)


def compute_dtypes(model: keras.Model) -> set[str]:
    """Returns the dtypes that layers compute in, and a subclassed model itself.

    Inputs, and models that Keras calls layer by layer, have a dtype too but compute nothing.
    """
    return {
        layer.compute_dtype
        for layer in model._flatten_layers()
        if not isinstance(layer, keras.layers.InputLayer)
        and not type(layer).call.__module__.startswith("keras.src.models.")
    }


def computes_in_float16(model: keras.Model) -> bool:
    """Returns whether anything does: then gradients are scaled."""
    return "float16" in compute_dtypes(model)


def stateful_layers(model: keras.Model) -> list[str]:
    """Returns the paths of BatchNormalization layers that would run in training mode."""
    return [
        layer.path
        for layer in model._flatten_layers(include_self=False)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]


def widened(x: Any) -> tf.Tensor:
    """Returns 16-bit floats as float32, all else as it is."""
    x = tf.convert_to_tensor(x)
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


def _sum(scalars: list[tf.Tensor]) -> tf.Tensor:
    """Returns the sum of scalars, float64 where one of them is."""
    wide = any(scalar.dtype == tf.float64 for scalar in scalars)
    return tf.add_n([tf.cast(s, tf.float64) if wide else s for s in scalars])


def _positive(x: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.logical_and(x > 0, tf.math.is_finite(x)), x, tf.ones_like(x))


def _scaled(x: tf.Tensor, factor: Any, divisor: Any) -> tf.Tensor:
    if factor is not None:
        x *= tf.cast(factor, x.dtype)
    return x if divisor is None else x / tf.cast(divisor, x.dtype)


def _times(gradient: Any, factor: Any) -> Any:
    """Returns a gradient, dense or of looked-up rows, times a scalar, in at least 32 bits."""
    if gradient is None or factor is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = _times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    gradient = widened(gradient)
    return gradient * tf.cast(factor, gradient.dtype)


def _seed_states(model: keras.Model) -> list[Any]:
    return [v for v in model.variables if v.name == "seed_generator_state"]


def _seed_at(state: Any, position: Sequence[Any]) -> tf.Tensor:
    seed = tf.cast(tf.convert_to_tensor(state), tf.int64)
    fold = tf.random.experimental.stateless_fold_in
    for index in position:
        seed = fold(seed, tf.cast(index, tf.int64) * _DRAWS_PER_MICRO_BATCH)
    return seed


def refuse_assignments(graph: Any) -> None:
    """Raises ValueError if a traced micro-batch assigns to a tf.Variable: Keras does not see it."""
    handles = {id(inner): outer for outer, inner in graph.captures}
    for operation in graph.get_operations():
        if not operation.type.startswith(("Assign", "ResourceScatter")):
            continue
        handle = handles.get(id(operation.inputs[0]))
        names = [v.name for v in graph.variables if v.handle is handle] or [operation.name]
        raise ValueError(_UPDATES.format(names=names[0]))


_UPDATES = (
    "the model updates {names} while it is called with training=True: state that depends on a "
    "micro-batch would make the result depend on its size. Use LayerNormalization or "
    "GroupNormalization in place of BatchNormalization, set layer.trainable = False to freeze its "
    "statistics, leave metrics and stateful=True out of layers, and give random layers a "
    "keras.random.SeedGenerator that they own."
)


def _refuse_updates(model: keras.Model, scope: Any, mapping: Values, seeds: Sequence[Any]) -> None:
    before = {id(variable): value for variable, value in mapping}
    updated = {k for k, v in scope.state_mapping.items() if v is not before.get(k)}
    updated -= {id(seed) for seed in seeds}
    if updated:
        known = {id(v): v.path for v in model.variables}
        for layer in model._flatten_layers():
            states = [*layer.metrics_variables, *tf.nest.flatten(getattr(layer, "states", ()))]
            known |= {id(v): f"a state of layer {layer.path!r}" for v in states}
        names = {known.get(key, "a seed or state outside the model") for key in updated}
        raise ValueError(_UPDATES.format(names=", ".join(sorted(names))))
