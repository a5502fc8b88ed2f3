"""Layers: one that looks up rows of a table, and what layers compute, replaced during a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

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


@contextlib.contextmanager
def replaced_calls(
    replacements: Iterable[tuple[keras.Operation, Any]], attribute: str = "call"
) -> Iterator[None]:
    """Give layers another `call` in the block, and their previous one after it.

    Another attribute than `call` is replaced if one is given.
    """
    pairs = list(replacements)
    # A layer has a `call` among its attributes only if it was replaced before, as by `recompute`.
    before = [vars(layer).get(attribute) for layer, _ in pairs]
    for layer, value in pairs:
        vars(layer)[attribute] = value
    try:
        yield
    finally:
        for (layer, _), value in zip(pairs, before, strict=True):
            if value is None:
                del vars(layer)[attribute]
            else:
                vars(layer)[attribute] = value
