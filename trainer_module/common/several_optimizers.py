"""Query a Keras optimizer that may be a keras.optimizers.MultiOptimizer."""

from __future__ import annotations

import keras
import tensorflow as tf


def is_several(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether it is a MultiOptimizer, which Keras has since 3.13."""
    kind = getattr(keras.optimizers, "MultiOptimizer", None)
    return kind is not None and isinstance(optimizer, kind)


def each_optimizer(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizer and those inside a MultiOptimizer (all of them once it is built)."""
    return [optimizer, *(optimizer.optimizers if is_several(optimizer) else ())]


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> float:
    """Return the rate of the next update; of a MultiOptimizer, that of its first optimizer."""
    rated = optimizer.optimizers[0] if is_several(optimizer) else optimizer
    return float(tf.convert_to_tensor(rated.learning_rate))
