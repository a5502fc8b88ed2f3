"""Sums over replicas, and one update by them on all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_module.window.gradient_sum import GradientSum
from trainer_module.window.several_optimizers import is_several


def sum_over_replicas(local: GradientSum) -> GradientSum:
    """Returns the sums of all replicas, on each; called inside `strategy.run`.

    Raises:
        ValueError: Called outside.
    """
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "sum_over_replicas is called in cross-replica context: call it inside the function "
            "that strategy.run runs on each replica."
        )
    flat = [tensor for tensor in tf.nest.flatten(local) if tensor is not None]
    reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, flat))
    return tf.nest.map_structure(lambda t: None if t is None else next(reduced), local)


def apply_gradients(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Sequence[Any]
) -> None:
    """Updates variables by g once, also on each of several replicas that have the same g.

    Inside `strategy.run` Keras' own `apply` sums over replicas: given the g of `mean_gradients` on
    N replicas, which is that of all rows already, it would apply N times g.

    Args:
        optimizer: Built on all trainable variables, in the strategy's scope.
        gradients: One per variable, equal on all replicas; None for a variable to leave alone.
        variables: The model's trainable variables.
    """
    pairs = [
        (None if g is None else tf.cast(g, v.dtype), v)
        for g, v in zip(gradients, variables, strict=True)
    ]
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1:
        # One replica gives g and the others 0, which is exact; g / replicas would round.
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        pairs = [
            (None if g is None else tf.where(is_first, g, tf.zeros_like(g)), v) for g, v in pairs
        ]
    if not is_several(optimizer):
        pairs = [(g, v) for g, v in pairs if g is not None]  # a MultiOptimizer leaves them out
    optimizer.apply([g for g, _ in pairs], [v for _, v in pairs])
