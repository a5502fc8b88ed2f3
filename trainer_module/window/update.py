"""The update of docs/design.md §4.1: from the sums of all replicas to the applied gradient.

    mean_gradients -> transforms -> finite check -> clip by global norm

No function changes a variable. Transforms run after the regularisation, so that they get the
gradient that the optimizer would get. They run before the finite check, so that the applied
gradient is checked, and before the clipping, so that `clip_norm` bounds the applied gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.model import find_assignment
from trainer_module.checks.randomness import find_stateful_draw
from trainer_module.common.tensors import Gradient, Variable, VariableValues
from trainer_module.options.step_options import GradientTransform, StepOptions, takes_step
from trainer_module.window.gradient_sum import GradientSum, noise_of_window, sum_dtype
from trainer_module.window.micro_batch import regularisation_gradients
from trainer_module.window.spec import Index, StepInputs, placement_of


class Update(NamedTuple):
    """The update of one window; equal on all replicas except for `finite_here`.

    Attributes:
        loss: The window's loss including regularisation, scalar.
        gradients: g, one per trainable variable; None for a variable without a gradient.
        gradient_norm: Global norm of g before clipping, scalar.
        weight_sum: Σ w_i, scalar; if each output has a separate Σ w_i, their mean.
        rows: Number of rows of the global batch, scalar.
        is_finite: Whether the loss, the numerator and the norm of g are finite, scalar bool.
        finite: Whether the sums over all replicas are finite, bool `[1 + variables]`: the sums of
            the loss, then the gradients of each variable. All true if `is_finite`.
        finite_here: The same for the sums of this replica.
        statistics: See `GradientSum`.
        noise: |G|² and tr Σ, `[2]`, NaN if not known; None without `gradient_noise_scale`.
    """

    loss: tf.Tensor
    gradients: list[Gradient]
    gradient_norm: tf.Tensor
    weight_sum: tf.Tensor
    rows: tf.Tensor
    is_finite: tf.Tensor
    finite: tf.Tensor
    finite_here: tf.Tensor
    noise: tf.Tensor | None = None
    statistics: tuple[tf.Tensor, ...] = ()

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether Σ w_i is 0, scalar bool."""
        return tf.equal(self.weight_sum, 0)

    @property
    def is_applied(self) -> tf.Tensor:
        """Whether the update changes the variables, scalar bool."""
        return tf.logical_and(self.is_finite, tf.logical_not(self.is_empty))

    @property
    def is_rejected(self) -> tf.Tensor:
        """Whether the window is not finite and Σ w_i is not 0, scalar bool."""
        return tf.logical_not(tf.logical_or(self.is_finite, self.is_empty))


def mean_gradients(
    total: GradientSum,
    model: keras.Model,
    *,
    loss_scale: tf.Tensor | None = None,
    values: VariableValues = (),
) -> tuple[tf.Tensor, list[Gradient]]:
    """Return the loss and g of docs/design.md §4.1, given sums over the whole global batch.

        g = ( Σ_i w_i ∇l_i ) / ( Σ_i w_i )  +  ∇R

    R is the sum of the variables' regularisers and the losses that layers pass to `add_loss`, each
    counted once. With several replicas, get `total` from `sum_over_replicas` and apply g with
    `apply_gradients`: `apply` of Keras would sum the equal g of all replicas.

    Args:
        total: Sums over all micro-batches and replicas. If Σ w is 0, the first term is 0.
        model: The model, for its regularisers.
        loss_scale: The factor of the gradients in `total`, scalar; None: 1.
        values: (variable, tensor) pairs to use instead of reading the variables; empty: read the
            variables.

    Returns:
        The scalar loss, and one gradient per trainable variable (None for a variable without one).
    """
    each = placement_of(model).map

    def quotient(gradient: Gradient, divisor: tf.Tensor) -> Gradient:
        if gradient is None:
            return None
        if loss_scale is not None:
            gradient /= tf.cast(loss_scale, gradient.dtype)
        return _quotient(gradient, divisor)

    loss = _quotient(total.numerator, total.denominator)
    gradients = each(lambda g: quotient(g, total.denominator), total.gradients)
    if total.added_loss is not None and total.added_gradients is not None:
        assert total.added_rows is not None
        rows = tf.maximum(total.added_rows, 1)
        loss += total.added_loss / rows
        added = each(lambda g: quotient(g, rows), total.added_gradients)
        gradients = each(_plus, gradients, added)
    regularisation, slopes = regularisation_gradients(model, values)
    if regularisation is None:
        return loss, gradients
    return loss + tf.cast(regularisation, loss.dtype), each(_plus, gradients, slopes)


def window_update(
    mean: tuple[tf.Tensor, list[Gradient]],
    total: GradientSum,
    local: GradientSum,
    model: keras.Model,
    options: StepOptions,
    inputs: StepInputs,
) -> Update:
    """Return the update of a window from its loss and mean gradient, without changing a variable.

    `total` and `local` are the sums over the rows of all replicas, and of this one. Transforms get
    the first number of `inputs.random_position` as the step.
    """
    loss, gradients = mean
    noise = None if total.squares is None else noise_of_window(total, inputs.loss_scale)
    for transform in options.transforms:
        gradients = _apply_transform(
            transform,
            gradients,
            model.trainable_variables,
            step=inputs.random_position[0],
            values=inputs.values,
        )
    dtype = sum_dtype(model)
    norm = tf.linalg.global_norm([tf.cast(g, dtype) for g in gradients if g is not None])
    numerator, weight_sum = total.numerator, total.denominator
    if weight_sum.shape.rank:  # one per output
        numerator, weight_sum = tf.reduce_sum(numerator), tf.reduce_mean(weight_sum)
    numerator, loss, norm = (tf.cast(x, dtype) for x in (numerator, loss, norm))
    is_finite = tf.reduce_all(tf.math.is_finite([numerator, loss, norm]))
    for sums in total.statistics:
        is_finite = tf.logical_and(is_finite, tf.reduce_all(tf.math.is_finite(sums)))
    # A finite norm means that all elements are finite. The flags are computed only if it is not.
    finite, finite_here = (
        tf.cond(
            is_finite,
            lambda: tf.ones([1 + len(total.gradients)], tf.bool),
            functools.partial(_finite_flags, sums),
        )
        for sums in (total, local)
    )
    if options.clip_norm is not None:
        factor = options.clip_norm / tf.maximum(norm, options.clip_norm)
        gradients = placement_of(model).map(
            lambda g: None if g is None else g * tf.cast(factor, g.dtype), gradients
        )
    return Update(
        loss,
        gradients,
        norm,
        weight_sum,
        total.rows,
        is_finite,
        finite,
        finite_here,
        noise,
        total.statistics,
    )


def _finite_flags(total: GradientSum) -> tf.Tensor:
    """Return which sums are finite, bool `[1 + variables]`: the loss, then each variable."""

    def finite(*tensors: tf.Tensor | None) -> tf.Tensor:
        checks = [tf.reduce_all(tf.math.is_finite(t)) for t in tensors if t is not None]
        return tf.reduce_all(tf.stack(checks)) if checks else tf.constant(True)

    added = total.added_gradients or [None] * len(total.gradients)
    return tf.stack(
        [
            finite(total.numerator, total.denominator, total.added_loss, *total.statistics),
            *(finite(g, a) for g, a in zip(total.gradients, added, strict=True)),
        ]
    )


def _quotient(sums: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """Return Σ / Σ w, summed over outputs if each has a separate Σ w; 0 where Σ w is 0."""
    denominator = tf.cast(denominator, sums.dtype)
    if denominator.shape.rank == 0:
        return tf.math.divide_no_nan(sums, denominator)
    axes = [-1] + [1] * (sums.shape.rank - 1)
    return tf.reduce_sum(tf.math.divide_no_nan(sums, tf.reshape(denominator, axes)), 0)


def _plus(first: Gradient, second: Gradient) -> Gradient:
    if first is None:
        return second if second is None else tf.convert_to_tensor(second)
    return first if second is None else first + tf.cast(tf.convert_to_tensor(second), first.dtype)


def _apply_transform(
    transform: GradientTransform,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    *,
    step: Index | None,
    values: VariableValues = (),
) -> list[Gradient]:
    """Return what a transform makes of the gradients, of which None stays None.

    Raises:
        ValueError: The transform does not return one gradient of the same shape per gradient, or
            it updates a Keras variable.
    """
    pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
    given = [g for g, _ in pairs]
    options = {"step": step} if takes_step(transform) else {}
    # Reads of variables see `values`. Assignments are not stored; they are detected and rejected.
    scope = keras.StatelessScope(list(values), initialize_variables=False)
    with scope:
        returned = transform(list(given), [v for _, v in pairs], **options)
    before = {id(variable): value for variable, value in values}
    if any(value is not before.get(key) for key, value in scope.state_mapping.items()):
        raise ValueError(_UPDATES.format(name=_name(transform), what="a Keras variable or seed"))
    rest = iter(_checked(transform, given, [v for _, v in pairs], returned))
    return [None if g is None else next(rest) for g in gradients]


def check_transforms(transforms: Sequence[GradientTransform], model: keras.Model) -> None:
    """Trace each transform once, with a gradient for each trainable variable.

    Raises:
        ValueError: A transform does not return a gradient of the same shape for each, assigns to a
            variable, which is in no checkpoint and which a skipped window does not undo, or draws
            random numbers from TensorFlow's state, which differ between replicas.
    """
    variables = model.trainable_variables
    specs = [
        tf.TensorSpec(v.shape, tf.float64 if v.dtype == "float64" else tf.float32)
        for v in variables
    ]
    for transform in transforms:

        def call(
            step: tf.Tensor, *gradients: tf.Tensor, function: GradientTransform = transform
        ) -> list[Gradient]:
            return _apply_transform(function, gradients, variables, step=step)

        traced = tf.function(call, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.int64), *specs
        )
        assigned = find_assignment(traced.graph)
        if assigned is not None:
            raise ValueError(_UPDATES.format(name=_name(transform), what=assigned))
        draw = find_stateful_draw(traced.graph)
        if draw is not None:
            raise ValueError(
                f"transforms: {_name(transform)} draws random numbers by {draw[0]} at {draw[1]!r}, "
                "from a state that differs between replicas and that no checkpoint has. Use "
                "tf.random.stateless_normal(shape, seed=[number, step]) with the parameter `step`."
            )


_UPDATES = (
    "transforms: {name} updates {what}: a transform is a function of gradients, variables and "
    "step. Skipped windows and checkpoints do not restore other state; compute it from `step`, or "
    "write an optimizer."
)


def _checked(
    transform: GradientTransform,
    given: Sequence[tf.Tensor],
    variables: Sequence[Variable],
    returned: object,
) -> list[tf.Tensor]:
    """Return the new gradients, each cast to the dtype of the given one."""
    if not isinstance(returned, (list, tuple)) or len(returned) != len(given):
        count = f" of {len(returned)}" if isinstance(returned, (list, tuple)) else ""
        raise ValueError(
            f"transforms: {_name(transform)} returned {type(returned).__name__}{count}: return a "
            f"list of {len(given)} gradients, one for each that it was given."
        )
    found = []
    for new, old, variable in zip(returned, given, variables, strict=True):
        shape = getattr(new, "shape", None)
        if shape is None or tf.TensorShape(shape) != old.shape:
            raise ValueError(
                f"transforms: {_name(transform)} returned shape {shape} for variable "
                f"{variable.path!r}: return a gradient of its shape, {old.shape}."
            )
        found.append(tf.cast(new, old.dtype))
    return found


def _name(transform: GradientTransform) -> str:
    return getattr(transform, "__qualname__", None) or repr(transform)
