"""What a reader of transformed rows provides, and the sizes of the blocks that it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

from trainer_module.common.tensors import Tensors

_BLOCK_ROWS = 1024
_BLOCK_BYTES = 4 << 20


class RowSource(Protocol):
    """Files of rows in one format, as datasets of blocks of rows.

    A block is what `parse` takes: serialized rows, or the features themselves.

    Attributes:
        parts: Number of parts that are read separately: files, or row groups.
        block_shuffle_rows: Least rows of a shuffle buffer that is shuffled in blocks. Fewer rows
            are shuffled one by one.
    """

    block_shuffle_rows: int

    @property
    def parts(self) -> int:
        """Number of parts that are read separately: files, or row groups."""
        ...

    def in_order(self) -> tf.data.Dataset:
        """Return all rows in blocks, in the same order each time."""
        ...

    def in_turn(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return all rows in blocks, one block of each of several parts in turn.

        Args:
            order: The numbers of the parts in the order to read them, int64 `[parts]`.
        """
        ...

    def one_by_one(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return the rows of `in_turn` as single elements."""
        ...

    def sampled(self, every: int) -> tf.data.Dataset:
        """Return the rows 0, `every`, 2 `every`, ... of `in_order` in blocks."""
        ...

    def parse(self, rows: Tensors) -> dict[str, tf.Tensor]:
        """Return the features of a block, each `[rows, ...]`."""
        ...


def row_bytes(feature_spec: Mapping[str, tf.io.FixedLenFeature]) -> int:
    """Return the bytes of a parsed row; a lower bound if features are strings."""
    return max(1, sum(math.prod(f.shape) * f.dtype.size for f in feature_spec.values()))


def block_rows(feature_spec: Mapping[str, tf.io.FixedLenFeature]) -> int:
    """Return the rows of a block: 1,024, or as many as fit into 4 MiB."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes(feature_spec)))
