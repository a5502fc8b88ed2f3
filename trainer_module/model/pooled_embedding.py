"""A text's terms as one vector: the weighted sum of what an embedding table has for each."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="trainer_module")
class PooledEmbedding(keras.layers.Layer):
    """Adds up the embeddings of ids, each times its weight.

        ids [rows, places], weights [rows, places] -> Σ_i weights_i · table[ids_i], [rows, size]

    It equals a dense layer without bias whose input has one column per id, and reads only the
    kernel's rows of the ids that are given. An id outside the table counts as the last one.
    """

    def __init__(self, count: int, size: int, **kwargs: Any) -> None:
        """Creates the layer.

        Args:
            count: Number of ids.
            size: Numbers per id.
            **kwargs: Of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.count, self.size = int(count), size

    def build(self, input_shape: Any) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            shape=(self.count, self.size), initializer="uniform", name="table"
        )

    def call(self, inputs: Any) -> Any:
        """Returns the sums, of [ids, weights]."""
        ops = keras.ops
        ids, weights = inputs
        ids = ops.cast(ids, "int32")
        ids = ops.where((ids < 0) | (ids >= self.count), self.count - 1, ids)
        found = ops.take(self.table, ids, axis=0)
        return ops.sum(found * ops.expand_dims(ops.cast(weights, found.dtype), -1), axis=1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, int]:
        """Returns (rows, size)."""
        return (input_shape[0][0], self.size)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "count": self.count, "size": self.size}
