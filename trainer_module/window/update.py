"""Compute the update of docs/design.md §4.1 by a sequence of small pure functions.

    reduce_over_replicas -> unscale -> measure_noise -> divide -> add_regularisation -> transforms
        -> check_finite -> clip

Each function takes the update so far and the inputs, and returns the next update. No function
changes a variable. To add a part, add one function here and one line in `update_functions`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.tensors import Gradient, VariableValues
from trainer_module.options.step_options import GradientTransform, StepOptions
from trainer_module.window.gradient_sum import (
    GradientSum,
    noise_of_window,
    sum_dtype,
    sum_over_replicas,
)
from trainer_module.window.micro_batch import regularisation_gradients
from trainer_module.window.spec import Placement, placement_of
from trainer_module.window.trace import phase_scope
from trainer_module.window.transforms import apply_transform


class Update(NamedTuple):
    """The update of one window; equal on all replicas except for `local` and `finite_here`.

    Attributes:
        local: Sums over the replica's rows.
        total: Sums over the rows of all replicas; equal to `local` before the reduction.
        loss: The window's loss including regularisation, scalar.
        gradients: g, one per trainable variable; None for a variable without a gradient.
        gradient_norm: Global norm of g before clipping, scalar.
        weight_sum: Σ w_i, scalar; if each output has a separate Σ w_i, their mean.
        is_finite: Whether the loss, the numerator and the norm of g are finite, scalar bool.
        finite: Whether the sums in `total` are finite, bool `[1 + variables]`: the sums of the
            loss, then the gradients of each variable. All true if `is_finite`.
        finite_here: The same for `local`.
        task_losses: L_k of each task without its weight, `[tasks]`, NaN for a task with Σ w_i = 0;
            None without `task_balance`.
        task_norms: Norm of the gradient of each task with its weight, over the variables that all
            tasks share, `[tasks]`; None without `task_balance="gradnorm"`.
        noise: |G|² and tr Σ, `[2]`, NaN if not known; None without `gradient_noise_scale`.
    """

    local: GradientSum
    total: GradientSum
    loss: tf.Tensor
    gradients: list[Gradient]
    gradient_norm: tf.Tensor
    weight_sum: tf.Tensor
    is_finite: tf.Tensor
    finite: tf.Tensor
    finite_here: tf.Tensor
    noise: tf.Tensor | None = None
    task_losses: tf.Tensor | None = None
    task_norms: tf.Tensor | None = None

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


class UpdateInputs(NamedTuple):
    """The inputs of the update functions, in addition to the update.

    Attributes:
        model: The model, for its variables and their regularisers.
        placement: The placement of the variables' gradients.
        step: Number of the optimizer step, int64 scalar.
        loss_scale: The factor of the gradients in `local`, scalar; None: 1.
        log_weights: Logarithm of the weight of each task, `[tasks]`; None without `task_balance`.
        shared: Per trainable variable, whether the losses of all tasks depend on it; empty without
            `task_balance="gradnorm"`.
        values: See `VariableValues`.
    """

    model: keras.Model
    placement: Placement
    step: tf.Tensor | None = None
    loss_scale: tf.Tensor | None = None
    log_weights: tf.Tensor | None = None
    shared: Sequence[bool] = ()
    values: VariableValues = ()


_UpdateFunction = Callable[[Update, UpdateInputs], Update]


def update_functions(options: StepOptions) -> tuple[_UpdateFunction, ...]:
    """Return the functions of an update, in order.

    User transforms run after the regularisation, so that they get the gradient that the optimizer
    would get. They run before the finite check, so that the applied gradient is checked, and before
    the clipping, so that `clip_norm` bounds the applied gradient.
    """
    transforms = [functools.partial(_transform, function=f) for f in options.transforms]
    noise = [] if options.gradient_noise_scale is None else [_measure_noise]
    norms = [_measure_tasks] if options.task_balance == "gradnorm" else []
    variances = [_add_log_variances] if options.task_balance == "uncertainty" else []
    clipping = []
    if options.clip_norm is not None:
        clipping = [functools.partial(clip, clip_norm=options.clip_norm)]
    return (
        _reduce_over_replicas,
        _unscale,
        *noise,
        *norms,
        divide,
        *variances,
        _add_regularisation,
        *transforms,
        _check_finite,
        *clipping,
    )


def window_update(
    local: GradientSum, inputs: UpdateInputs, functions: tuple[_UpdateFunction, ...]
) -> Update:
    """Return the update of one window without changing a variable; call it inside `strategy.run`.

    Args:
        local: Sums over the replica's micro-batches.
        inputs: Inputs of the functions.
        functions: The result of `update_functions`.
    """
    update = _begin(local)
    for function in functions:
        with phase_scope("reduction" if function is _reduce_over_replicas else "update"):
            update = function(update, inputs)
    return update


def mean_gradients(
    total: GradientSum, model: keras.Model, *, values: VariableValues = ()
) -> tuple[tf.Tensor, list[Gradient]]:
    """Return the loss and g of docs/design.md §4.1, given sums over the whole global batch.

        g = ( Σ_i w_i ∇l_i ) / ( Σ_i w_i )  +  ∇R

    R is the sum of the variables' regularisers and the losses that layers pass to `add_loss`, each
    counted once. With several replicas, get `total` from `sum_over_replicas` and apply g with
    `apply_gradients`: `apply` of Keras would sum the equal g of all replicas.

    Args:
        total: Sums over all micro-batches and replicas. If Σ w is 0, the first term is 0.
        model: The model, for its regularisers.
        values: (variable, tensor) pairs to use instead of reading the variables; empty: read the
            variables.

    Returns:
        The scalar loss, and one gradient per trainable variable (None for a variable without one).
    """
    inputs = UpdateInputs(model, placement_of(model), values=values)
    update = _add_regularisation(divide(_begin(total), inputs), inputs)
    return update.loss, update.gradients


def _begin(local: GradientSum) -> Update:
    nothing = tf.zeros([])
    return Update(
        local=local,
        total=local,
        loss=nothing,
        gradients=list(local.gradients),
        gradient_norm=nothing,
        weight_sum=nothing,
        is_finite=nothing,
        finite=nothing,
        finite_here=nothing,
    )


def _reduce_over_replicas(update: Update, inputs: UpdateInputs) -> Update:
    """Sum over all replicas."""
    return update._replace(total=sum_over_replicas(update.local))


def _unscale(update: Update, inputs: UpdateInputs) -> Update:
    """Divide the gradients of the sums by the loss scale."""
    scale = inputs.loss_scale
    if scale is None:
        return update

    def down(gradients: list[Gradient] | None) -> list[Gradient] | None:
        if gradients is None:
            return None
        return _each(inputs, lambda g: g / tf.cast(scale, g.dtype), gradients)

    total = update.total._replace(
        gradients=down(update.total.gradients), added_gradients=down(update.total.added_gradients)
    )
    if total.squares is not None:
        factor = tf.cast(scale, total.squares.dtype)
        total = total._replace(squares=total.squares / tf.stack([factor**2, tf.ones_like(factor)]))
    return update._replace(total=total)


def _measure_noise(update: Update, inputs: UpdateInputs) -> Update:
    """Estimate the gradient noise from the sums; regularisation and added losses have none."""
    if update.total.denominator.shape.rank:
        raise ValueError(
            "gradient_noise_scale with outputs that have separate sample weights: the gradient of "
            "a row is not defined. Give one sample weight per row for all outputs, or leave out "
            "gradient_noise_scale."
        )
    return update._replace(noise=noise_of_window(update.total))


def divide(update: Update, inputs: UpdateInputs) -> Update:
    """Divide the weighted sums by Σ w and the added losses by their rows, and add the quotients."""
    total = update.total
    loss = _quotient(total.numerator, total.denominator)
    gradients = _each(inputs, lambda g: _quotient(g, total.denominator), total.gradients)
    if total.added_loss is not None and total.added_gradients is not None:
        assert total.added_rows is not None
        rows = tf.maximum(total.added_rows, 1)
        loss += total.added_loss / rows
        added = _each(inputs, lambda a: a / tf.cast(rows, a.dtype), total.added_gradients)
        gradients = inputs.placement.map(_plus, gradients, added)
    return update._replace(loss=loss, gradients=gradients)


def _add_log_variances(update: Update, inputs: UpdateInputs) -> Update:
    """Add Σ_k s_k / 2 to the loss, where -s_k is the log-weight, and compute the tasks' losses."""
    tasks, log_weights = update.total.tasks, inputs.log_weights
    assert tasks is not None
    assert log_weights is not None
    loss = update.loss - tf.cast(tf.reduce_sum(log_weights) / 2, update.loss.dtype)
    return update._replace(loss=loss, task_losses=tasks[0] / tasks[1])


def _measure_tasks(update: Update, inputs: UpdateInputs) -> Update:
    """Compute the losses of the tasks and the norms of their gradients."""
    tasks = update.total.tasks
    assert tasks is not None
    pairs = zip(update.total.gradients, inputs.shared, strict=True)
    flat = [tf.reshape(g, [tasks.shape[1], -1]) for g, is_shared in pairs if is_shared]
    squares = tf.add_n([tf.reduce_sum(tf.square(tf.cast(g, tasks.dtype)), 1) for g in flat])
    norms = tf.sqrt(squares) / tasks[1]
    return update._replace(task_losses=tasks[0] / tasks[1], task_norms=norms)


def _add_regularisation(update: Update, inputs: UpdateInputs) -> Update:
    """Add the variables' regularisers to the loss and their gradients to g."""
    regularisation, slopes = regularisation_gradients(inputs.model, inputs.values)
    if regularisation is None:
        return update
    return update._replace(
        loss=update.loss + tf.cast(regularisation, update.loss.dtype),
        gradients=inputs.placement.map(_plus, update.gradients, slopes),
    )


def _transform(update: Update, inputs: UpdateInputs, *, function: GradientTransform) -> Update:
    """Apply a user transform to g."""
    gradients = apply_transform(
        function,
        update.gradients,
        inputs.model.trainable_variables,
        step=inputs.step,
        values=inputs.values,
    )
    return update._replace(gradients=gradients)


def _check_finite(update: Update, inputs: UpdateInputs) -> Update:
    """Compute the norm of g and whether the loss, the sums and g are finite."""
    dtype = sum_dtype(inputs.model)
    norm = tf.linalg.global_norm([tf.cast(g, dtype) for g in update.gradients if g is not None])
    total = update.total
    numerator, weight_sum = total.numerator, total.denominator
    if weight_sum.shape.rank:  # one per output
        numerator, weight_sum = tf.reduce_sum(numerator), tf.reduce_mean(weight_sum)
    numerator, loss, norm = (tf.cast(x, dtype) for x in (numerator, update.loss, norm))
    is_finite = tf.reduce_all(tf.math.is_finite([numerator, loss, norm]))
    # A finite norm means that all elements are finite. The flags are computed only if it is not.
    finite, finite_here = (
        tf.cond(
            is_finite,
            lambda: tf.ones([1 + len(total.gradients)], tf.bool),
            functools.partial(_finite_flags, sums),
        )
        for sums in (total, update.local)
    )
    return update._replace(
        loss=loss,
        gradient_norm=norm,
        weight_sum=weight_sum,
        is_finite=is_finite,
        finite=finite,
        finite_here=finite_here,
    )


def clip(update: Update, inputs: UpdateInputs, *, clip_norm: float) -> Update:
    """Scale g down to a global norm of at most `clip_norm`."""
    norm = update.gradient_norm
    factor = clip_norm / tf.maximum(norm, clip_norm)
    scaled = _each(inputs, lambda g: g * tf.cast(factor, g.dtype), update.gradients)
    return update._replace(gradients=scaled)


def _finite_flags(total: GradientSum) -> tf.Tensor:
    """Return which sums are finite, bool `[1 + variables]`: the loss, then each variable."""

    def finite(*tensors: tf.Tensor | None) -> tf.Tensor:
        checks = [tf.reduce_all(tf.math.is_finite(t)) for t in tensors if t is not None]
        return tf.reduce_all(tf.stack(checks)) if checks else tf.constant(True)

    added = total.added_gradients or [None] * len(total.gradients)
    return tf.stack(
        [
            finite(total.numerator, total.denominator, total.added_loss),
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


def _each(
    inputs: UpdateInputs,
    function: Callable[[tf.Tensor], tf.Tensor],
    gradients: list[Gradient],
) -> list[Gradient]:
    """Return the function's result for each gradient; None stays None."""
    return inputs.placement.map(lambda g: None if g is None else function(g), gradients)


def _plus(first: Gradient, second: Gradient) -> Gradient:
    if first is None:
        return second if second is None else tf.convert_to_tensor(second)
    return first if second is None else first + tf.cast(tf.convert_to_tensor(second), first.dtype)
