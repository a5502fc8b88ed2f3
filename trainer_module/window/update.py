"""The update of docs/design.md §4.1: from the sums of each replica to what is applied on all.

reduce over replicas -> unscale -> divide and add ∇R -> check what will be applied -> clip
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.stages.own_gradient import on_device
from trainer_module.stages.staged_model import variable_devices
from trainer_module.window.gradient_sum import GradientSum, sum_dtype
from trainer_module.window.micro_batch import Values, regularisation_gradients
from trainer_module.window.reduction import sum_over_replicas


class Update(NamedTuple):
    """What one window asks of the variables, equal on all replicas.

    Attributes:
        gradients: g, clipped, one per trainable variable; None where a variable has none.
        loss: Scalar, with all that regularises.
        gradient_norm: Global norm of g before it was clipped, scalar.
        weight_sum: Σ w_i, scalar; the mean over outputs that have a Σ w_i each.
        rows: Rows of all replicas, scalar.
        is_finite: Whether loss, sums and g are, scalar bool.
        is_empty: Whether Σ w_i is 0, scalar bool.
        finite: Bools `[1 + variables]`: the sums of the loss, then each variable's gradients.
        finite_here: The same of this replica's own sums; all true where g is finite.
    """

    gradients: list[Any]
    loss: tf.Tensor
    gradient_norm: tf.Tensor
    weight_sum: tf.Tensor
    rows: tf.Tensor
    is_finite: tf.Tensor
    is_empty: tf.Tensor
    finite: tf.Tensor
    finite_here: tf.Tensor


def window_update(
    local: GradientSum,
    model: keras.Model,
    *,
    loss_scale: tf.Tensor | None = None,
    clip_norm: float | None = None,
    values: Values = (),
) -> Update:
    """Returns a window's update; called inside `strategy.run`, and changes no variable.

    Args:
        local: Sums over the replica's micro-batches.
        model: The model, for its variables and their regularisers.
        loss_scale: The factor that the gradients of `local` have, or None.
        clip_norm: Largest global norm of g, that of all replicas and micro-batches together.
        values: See `accumulate_gradients`.
    """
    dtype = sum_dtype(model)
    total = _unscaled(sum_over_replicas(local), loss_scale, model)
    loss, gradients = mean_gradients(total, model, values=values)
    # The division and the regularisers may overflow too: what is applied is what is checked.
    norm = tf.linalg.global_norm([tf.cast(g, dtype) for g in gradients if g is not None])
    numerator, weight_sum = total.numerator, total.denominator
    if weight_sum.shape.rank:  # one per output
        numerator, weight_sum = tf.reduce_sum(numerator), tf.reduce_mean(weight_sum)
    numerator, loss, norm = (tf.cast(x, dtype) for x in (numerator, loss, norm))
    is_finite = tf.reduce_all(tf.math.is_finite([numerator, loss, norm]))
    # The norm says whether all elements are finite; which are not is asked for when one is not.
    finite, finite_here = (
        tf.cond(
            is_finite,
            lambda: tf.ones([1 + len(total.gradients)], tf.bool),
            functools.partial(_finite_flags, sums),
        )
        for sums in (total, local)
    )
    if clip_norm is not None:
        factor = clip_norm / tf.maximum(norm, clip_norm)
        gradients = _each(model, lambda g: g * tf.cast(factor, g.dtype), gradients)
    return Update(
        gradients=gradients,
        loss=loss,
        gradient_norm=norm,
        weight_sum=weight_sum,
        rows=total.rows,
        is_finite=is_finite,
        is_empty=tf.equal(weight_sum, 0),
        finite=finite,
        finite_here=finite_here,
    )


def mean_gradients(
    total: GradientSum, model: keras.Model, *, values: Values = ()
) -> tuple[tf.Tensor, list[Any]]:
    """Returns the loss and g of docs/design.md §4.1 from sums over the whole global batch.

        g = ( Σ_i w_i ∇l_i ) / ( Σ_i w_i )  +  ∇R

    R are the variables' regularisers and what layers gave to `add_loss`, each counted once. On a
    replica of several, `total` comes from `sum_over_replicas`, and what follows is an update by
    `apply_gradients`: Keras' own `apply` would add the equal g of all replicas up.

    Args:
        total: Sums over all micro-batches and replicas. With Σ w = 0 the first term is 0.
        model: The model, for its regularisers.
        values: See `accumulate_gradients`.

    Returns:
        The scalar loss, and one gradient per trainable variable (None where there is none).
    """
    loss = _quotient(total.numerator, total.denominator)
    gradients = _each(model, lambda g: _quotient(g, total.denominator), total.gradients)
    if total.added_loss is not None and total.added_gradients is not None:
        assert total.added_rows is not None
        rows = tf.maximum(total.added_rows, 1)
        loss += total.added_loss / rows
        added = _each(model, lambda a: a / tf.cast(rows, a.dtype), total.added_gradients)
        gradients = _sums(model, gradients, added)
    regularisation, slopes = regularisation_gradients(model, values)
    if regularisation is not None:
        loss += tf.cast(regularisation, loss.dtype)
        gradients = _sums(model, gradients, slopes)
    return loss, gradients


def _unscaled(total: GradientSum, scale: tf.Tensor | None, model: keras.Model) -> GradientSum:
    """Returns the sums with gradients divided by the loss scale."""
    if scale is None:
        return total

    def down(gradients: Any) -> Any:
        if gradients is None:
            return None
        return _each(model, lambda g: g / tf.cast(scale, g.dtype), gradients)

    return total._replace(
        gradients=down(total.gradients), added_gradients=down(total.added_gradients)
    )


def _finite_flags(total: GradientSum) -> tf.Tensor:
    """Returns bools [1 + variables]: the sums of the loss, then each variable's gradients."""

    def finite(*tensors: Any) -> tf.Tensor:
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
    """Returns Σ / Σ w, or the sum of those of all outputs; 0 where Σ w is 0."""
    denominator = tf.cast(denominator, sums.dtype)
    if denominator.shape.rank == 0:
        return tf.math.divide_no_nan(sums, denominator)
    axes = [-1] + [1] * (sums.shape.rank - 1)
    return tf.reduce_sum(tf.math.divide_no_nan(sums, tf.reshape(denominator, axes)), 0)


def _each(
    model: keras.Model, function: Callable[[Any], Any], gradients: Sequence[Any]
) -> list[Any]:
    """Returns the function of each gradient, computed beside its variable; None stays."""
    found = []
    for device, gradient in zip(variable_devices(model), gradients, strict=True):
        with on_device(device):
            found.append(None if gradient is None else function(gradient))
    return found


def _sums(model: keras.Model, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    found = []
    for device, a, b in zip(variable_devices(model), first, second, strict=True):
        with on_device(device):
            found.append(_plus(a, b))
    return found


def _plus(a: Any, b: Any) -> Any:
    if a is None:
        return b if b is None else tf.convert_to_tensor(b)
    return a if b is None else a + tf.cast(tf.convert_to_tensor(b), a.dtype)
