"""A function over rows, some rows at a time, in the graph."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def map_chunks(
    function: Callable[[Any], list[tf.Tensor]], data: Tensors, specs: list[Any], *, chunk_size: int
) -> list[tf.Tensor]:
    """Returns the concatenation of `function(rows)` over consecutive chunks of rows.

    Args:
        function: From the structure of `data` with up to `chunk_size` rows to tensors
            `[those rows, ...]`.
        data: Structure of tensors `[rows, ...]`; None passes.
        specs: dtype and shape (without rows) of each tensor that `function` returns.
        chunk_size: Rows at a time: what bounds the memory.

    Raises:
        ValueError: chunk_size below 1.
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

    # A TensorArray of no chunks cannot be concatenated.
    return tf.cond(rows > 0, all_chunks, none)
