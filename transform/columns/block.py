"""Block: what an encoder or scaler hands to the packer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf


class IdCount(NamedTuple):
    """The number of ids of a column; that of a vocabulary is known after the analysis."""

    total: Any  # int, or int64 scalar tensor
    vocabulary: str | None = None  # file with one known value per line
    extra_ids: int = 0  # ids beside those of known values: unseen and missing ones


class Entry(NamedTuple):
    """The learned value that a 0/1 column stands for: a line of a vocabulary file."""

    vocabulary: str
    line: int  # from 0


class Block(NamedTuple):
    """Output columns of one dtype, side by side, in any order."""

    names: tuple[str, ...]
    values: tf.Tensor  # float32 or int64 [batch, n]
    sources: tuple[str, ...]
    missing: tf.Tensor  # bool [batch, n]: of the sources
    sizes: tuple[IdCount | None, ...]  # None for floats
    entries: tuple[Entry | None, ...] | None = None  # None: no column has one
