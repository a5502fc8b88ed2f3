"""Sums over replicas, and whether they are finite."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer_module.accumulation import GradientSum


def all_reduce(context: Any, local: GradientSum) -> GradientSum:
    """Returns the sums of all replicas, on each; called in replica context."""
    flat = [tensor for tensor in tf.nest.flatten(local) if tensor is not None]
    reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, flat))
    return tf.nest.map_structure(lambda t: None if t is None else next(reduced), local)


def unscale(total: GradientSum, scale: tf.Tensor | None) -> GradientSum:
    """Returns the sums with gradients divided by the loss scale."""
    if scale is None:
        return total

    def down(gradients: Any) -> Any:
        if gradients is None:
            return None
        return [None if g is None else g / tf.cast(scale, g.dtype) for g in gradients]

    return total._replace(
        gradients=down(total.gradients), added_gradients=down(total.added_gradients)
    )


def finite_flags(total: GradientSum) -> tf.Tensor:
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
