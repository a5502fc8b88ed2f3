"""Piecewise linear functions of each number, which let a narrow network fit nonlinear data."""

from __future__ import annotations

from statistics import NormalDist

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.tensors import Shape


@keras.saving.register_keras_serializable(package="trainer_module")
class Hinges(keras.layers.Layer):
    """Return each number and its distance beyond each knot of its column.

        x -> x, max(x - k_1, 0), ..., max(x - k_n, 0)
        [rows, columns] -> [rows, columns * (1 + n)]

    A weighted sum of these is a piecewise linear function of the number, as in trees and splines.
    A dense layer alone has to build such functions from weights that all columns share. This is the
    piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular
    Deep Learning" (2022), in another basis and with learned knots. The knots start at the quantiles
    of a standard normal distribution, because scaled columns have values near 0 and about 1 wide.
    """

    def __init__(self, knots: int, **kwargs: object) -> None:
        """Create the layer.

        Args:
            knots: Number of knots per column.
            **kwargs: Arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.count = knots

    def build(self, input_shape: Shape) -> None:
        """Create the knots `[columns, knots]`."""
        normal = NormalDist()
        start = [normal.inv_cdf((i + 0.5) / self.count) for i in range(self.count)]

        def quantiles(shape: Shape, dtype: str | None = None) -> tf.Tensor:
            return keras.ops.broadcast_to(keras.ops.convert_to_tensor(start, dtype), shape)

        self.knots = self.add_weight(
            shape=(input_shape[-1], self.count), initializer=quantiles, name="knots"
        )

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return numbers `[rows, columns]` and their distances beyond the knots."""
        ops = keras.ops
        each = ops.expand_dims(numbers, -1)
        found = ops.concatenate([each, ops.relu(each - self.knots)], axis=-1)
        return ops.reshape(found, (-1, found.shape[1] * found.shape[2]))

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, int]:
        """Return (rows, columns * (1 + knots))."""
        return (input_shape[0], input_shape[-1] * (1 + self.count))

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "knots": self.count}
