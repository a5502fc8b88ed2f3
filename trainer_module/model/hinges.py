"""Piecewise linear functions of each number, which let a narrow network fit nonlinear data."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import keras


@keras.saving.register_keras_serializable(package="trainer_module")
class Hinges(keras.layers.Layer):
    """Return each number and its distance beyond each knot of its column.

        x -> x, max(x - k_1, 0), ..., max(x - k_n, 0)
        [rows, columns] -> [rows, columns * (1 + n)]

    Any weighted sum of these is a piecewise linear function of the number, as in trees and splines.
    A dense layer alone has to build such functions from weights that all columns share. This is the
    piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular
    Deep Learning" (2022), in another basis and with learned knots. The knots start at the quantiles
    of a standard normal distribution, because scaled columns have values near 0 and about 1 wide.
    """

    def __init__(self, knots: int, **kwargs: Any) -> None:
        """Create the layer.

        Args:
            knots: Number of knots per column.
            **kwargs: Arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.count = knots

    def build(self, input_shape: Any) -> None:
        """Create the knots `[columns, knots]`."""
        normal = NormalDist()
        start = [normal.inv_cdf((i + 0.5) / self.count) for i in range(self.count)]

        def quantiles(shape: Any, dtype: Any = None) -> Any:
            return keras.ops.broadcast_to(keras.ops.convert_to_tensor(start, dtype), shape)

        self.knots = self.add_weight(
            shape=(input_shape[-1], self.count), initializer=quantiles, name="knots"
        )

    def call(self, numbers: Any) -> Any:
        """Return numbers `[rows, columns]` and their distances beyond the knots."""
        ops = keras.ops
        each = ops.expand_dims(numbers, -1)
        found = ops.concatenate([each, ops.relu(each - self.knots)], axis=-1)
        return ops.reshape(found, (-1, found.shape[1] * found.shape[2]))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, int]:
        """Return (rows, columns * (1 + knots))."""
        return (input_shape[0], input_shape[-1] * (1 + self.count))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "knots": self.count}
