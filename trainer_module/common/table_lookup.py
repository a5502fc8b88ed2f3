"""A layer that looks up rows of a table."""

from __future__ import annotations

import keras
import tensorflow as tf


class TableLookup(keras.layers.Layer):
    """Return rows of `table`, side by side: ids `[rows, n]` -> `[rows, n * size]`.

    A subclass creates `table` `[rows of the table, size]` and defines `table_rows`. The table is
    used in `call` alone, so the gradient of a row is known from `table_rows` and the gradient of
    the output (`gradients/layer_gradients.py`).
    """

    table: keras.Variable

    def table_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the row of the table for each id, int32 `[rows, n]`."""
        raise NotImplementedError

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the concatenated rows of the table."""
        ops = keras.ops
        found = ops.take(self.table, self.table_rows(ids), axis=0)
        return ops.reshape(found, (-1, found.shape[1] * found.shape[2]))
