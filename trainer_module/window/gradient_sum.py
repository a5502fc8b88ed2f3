"""Sums over rows, from which the loss and the gradient of a window follow."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.tensors import Gradient
from trainer_module.options.step_options import AddedLosses


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
    gradients: list[Gradient]
    added_loss: tf.Tensor | None = None
    added_gradients: list[Any] | None = None
    added_rows: tf.Tensor | None = None

    def __add__(self, other: GradientSum) -> GradientSum:  # pyright: ignore
        """Returns the sums over the rows of both, of the same model and loss."""
        return tf.nest.map_structure(lambda a, b: None if a is None else a + b, self, other)


def sum_dtype(model: keras.Model) -> tf.DType:
    """Returns the dtype of a window's sums: float64 where a trainable variable is, else float32."""
    wide = any(variable.dtype == "float64" for variable in model.trainable_variables)
    return tf.float64 if wide else tf.float32


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
