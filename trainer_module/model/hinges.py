"""Piecewise linear functions of each number, so that a narrow network can bend where data do."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import keras


@keras.saving.register_keras_serializable(package="trainer_module")
class Hinges(keras.layers.Layer):
    """Each number, and how far it is beyond each of its column's knots.

        x -> x, max(x - k_1, 0), ..., max(x - k_n, 0)
        [rows, columns] -> [rows, columns * (1 + n)]

    Any weighted sum of these is a piecewise linear function of the number, as trees and splines
    have them; a dense layer alone has to make its bends of weights that all columns share. It is
    the piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in
    Tabular Deep Learning" (2022), in another basis and with knots that are learned: they begin at
    the quantiles of a standard normal distribution, where columns that are scaled to be near 0 and
    about 1 wide have their values.
    """

    def __init__(self, knots: int, **kwargs: Any) -> None:
        """Creates the layer.

        Args:
            knots: Of each column.
            **kwargs: Of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.count = knots

    def build(self, input_shape: Any) -> None:
        """Creates the knots `[columns, knots]`."""
        normal = NormalDist()
        start = [normal.inv_cdf((i + 0.5) / self.count) for i in range(self.count)]

        def quantiles(shape: Any, dtype: Any = None) -> Any:
            return keras.ops.broadcast_to(keras.ops.convert_to_tensor(start, dtype), shape)

        self.knots = self.add_weight(
            shape=(input_shape[-1], self.count), initializer=quantiles, name="knots"
        )

    def call(self, numbers: Any) -> Any:
        """Returns numbers `[rows, columns]` and their distances beyond the knots."""
        ops = keras.ops
        each = ops.expand_dims(numbers, -1)
        found = ops.concatenate([each, ops.relu(each - self.knots)], axis=-1)
        return ops.reshape(found, (-1, found.shape[1] * found.shape[2]))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, int]:
        """Returns (rows, columns * (1 + knots))."""
        return (input_shape[0], input_shape[-1] * (1 + self.count))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "knots": self.count}
