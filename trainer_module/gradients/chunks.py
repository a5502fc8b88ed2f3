"""Apply a function to chunks of rows in the graph."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def map_chunks(
    function: Callable[[Any], list[tf.Tensor]], data: Tensors, specs: list[Any], *, chunk_size: int
) -> list[tf.Tensor]:
    """Return the concatenation of `function(rows)` over consecutive chunks of rows.

    Args:
        function: Function of the structure of `data` with up to `chunk_size` rows. It returns
            tensors with the same number of rows `[rows, ...]`.
        data: Structure of tensors `[rows, ...]` or None.
        specs: (dtype, shape without rows) of each tensor that `function` returns.
        chunk_size: Number of rows at a time; it bounds the memory.

    Returns:
        One tensor `[rows, ...]` per entry of `specs`.

    Raises:
        ValueError: chunk_size is not an integer of at least 1.
    """
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, numbers.Integral):
        raise ValueError(f"chunk_size={chunk_size!r}: use a whole number of at least 1 row.")
    if chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: use a whole number of at least 1 row.")
    tensors = [tensor for tensor in tf.nest.flatten(data) if tensor is not None]
    rows = tf.shape(tensors[0])[0]
    count = -(-rows // chunk_size)
    arrays = [
        tf.TensorArray(dtype, count, element_shape=[None, *shape], infer_shape=False)
        for dtype, shape in specs
    ]

    def body(index: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
        start = index * chunk_size
        part = tf.nest.map_structure(
            lambda t: None if t is None else t[start : start + chunk_size], data
        )
        found = function(part)
        written = [a.write(index, tensor) for a, tensor in zip(arrays, found, strict=True)]
        return index + 1, written

    def all_chunks() -> list[tf.Tensor]:
        _, filled = tf.while_loop(
            lambda index, _: index < count, body, (tf.constant(0), arrays), parallel_iterations=1
        )
        return [array.concat() for array in filled]

    def none() -> list[tf.Tensor]:
        return [tf.zeros([0, *shape], dtype) for dtype, shape in specs]

    # An empty TensorArray cannot be concatenated.
    return tf.cond(rows > 0, all_chunks, none)
