"""Embed the terms of a text as one vector: the weighted sum of their embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer_module.common.json_values import Json
from trainer_module.common.tensors import Shape, Tensors


@keras.saving.register_keras_serializable(package="trainer_module")
class PooledEmbedding(keras.layers.Layer):
    """Sum the embeddings of ids, each times its weight.

        ids [rows, places], weights [rows, places] -> Σ_i weights_i · table[ids_i], [rows, size]

    It equals a dense layer without bias whose input has one column per id, but reads only the
    kernel rows of the given ids. An id outside the table counts as the last one.
    """

    def __init__(self, count: int, size: int, **kwargs: object) -> None:
        """Create the layer.

        Args:
            count: Number of ids.
            size: Embedding size.
            **kwargs: Arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.count, self.size = int(count), size

    def build(self, input_shape: Shape) -> None:
        """Create the table."""
        self.table = self.add_weight(
            shape=(self.count, self.size), initializer="uniform", name="table"
        )

    def call(self, inputs: Sequence[Tensors]) -> tf.Tensor:
        """Return the sums for [ids, weights]."""
        ops = keras.ops
        ids, weights = inputs
        ids = ops.cast(ids, "int32")
        ids = ops.where((ids < 0) | (ids >= self.count), self.count - 1, ids)
        found = ops.take(self.table, ids, axis=0)
        return ops.sum(found * ops.expand_dims(ops.cast(weights, found.dtype), -1), axis=1)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, int]:
        """Return (rows, size)."""
        return (input_shape[0][0], self.size)

    def get_config(self) -> dict[str, Json]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "count": self.count, "size": self.size}
