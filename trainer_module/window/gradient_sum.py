"""Sums over rows: the loss and the gradient of a window are computed from them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_module.common.tensors import Gradient
from trainer_module.options.step_options import AddedLosses


class GradientSum(NamedTuple):
    """Sums over the rows i of a batch; `first + second` are the sums over the rows of both.

        g = gradients / denominator + ∇R + ∇A          (see `mean_gradients`)
        A = added_loss / max(added_rows, 1)

    If each output has a separate Σ w_i (see `weighted_loss`), numerator, denominator and gradients
    have a first axis `[outputs]`, and the quotients are summed over it.

    Attributes:
        numerator: Σ w_i l_i, scalar. All sums are float32, or float64 for a float64 model.
        denominator: Σ w_i, scalar.
        rows: Number of rows regardless of their weights, scalar.
        gradients: Σ w_i ∇l_i, one dense tensor per trainable variable; None if the loss does not
            depend on the variable.
        added_loss: Sum of the losses that layers pass to `add_loss`, including activity
            regularisers, scalar. If they are means over rows, the losses of each pass are
            multiplied by its number of rows. None for a model without such losses.
        added_gradients: Gradients of `added_loss`, one per trainable variable; None for a model
            without such losses.
        added_rows: Number of rows to divide `added_loss` by, 0 if it is a sum over rows; None for a
            model without such losses.
        squares: Σ_k |s_k|² and Σ_k n_k² over the passes k, `[2]`; None without
            `gradient_noise_scale` (see `noise_scale.py`).
        tasks: Σ w_i l_i and Σ w_i of each task without its weight, `[2, tasks]`; None without
            `task_balance`.
    """

    numerator: tf.Tensor
    denominator: tf.Tensor
    rows: tf.Tensor
    gradients: list[Gradient]
    added_loss: tf.Tensor | None = None
    added_gradients: list[Gradient] | None = None
    added_rows: tf.Tensor | None = None
    squares: tf.Tensor | None = None
    tasks: tf.Tensor | None = None

    def __add__(self, other: GradientSum) -> GradientSum:  # pyright: ignore
        """Return the sums over the rows of both operands, of the same model and loss."""
        return tf.nest.map_structure(lambda a, b: None if a is None else a + b, self, other)


def sum_dtype(model: keras.Model) -> tf.DType:
    """Return float64 if a trainable variable is float64, else float32: the dtype of the sums."""
    wide = any(variable.dtype == "float64" for variable in model.trainable_variables)
    return tf.float64 if wide else tf.float32


def default_added_losses(model: keras.Model) -> AddedLosses:
    """Return whether activity regularisers are a mean or a sum over rows in this Keras release.

    The first releases of Keras 3 sum over rows; later ones divide by the number of rows. For a
    model without activity regularisers the result is "mean", which is also exact for losses that
    do not depend on the batch.
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
