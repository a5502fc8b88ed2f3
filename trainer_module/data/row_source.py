"""Read TFRecords as blocks of serialized rows, and the sizes of blocks of any format."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import tensorflow as tf

BLOCK_ROWS = 1024
_BLOCK_BYTES = 4 << 20
_READ_BUFFER_BYTES = 8 << 20
_FILES_AT_A_TIME = 8


class PaddedFeature(NamedTuple):
    """A feature of at most `shape[0]` numbers per row; readers append 0 to rows of fewer."""

    shape: tuple[int]
    dtype: tf.DType


Feature: TypeAlias = tf.io.FixedLenFeature | PaddedFeature


def row_bytes(feature_spec: Mapping[str, Feature]) -> int:
    """Return the bytes of a parsed row; a lower bound if features are strings."""
    return max(1, sum(math.prod(f.shape) * f.dtype.size for f in feature_spec.values()))


def block_rows(feature_spec: Mapping[str, Feature], most_rows: int = BLOCK_ROWS) -> int:
    """Return the rows of a block: `most_rows`, or as many as fit into 4 MiB."""
    return max(1, min(most_rows, _BLOCK_BYTES // row_bytes(feature_spec)))


@dataclasses.dataclass(frozen=True)
class TFRecordRows:
    """TFRecord files; a part, which is read separately, is a file.

    A block, which `parse` takes, is serialized rows `[rows]`. `ParquetRows` has the same methods.
    """

    files: tuple[str, ...]  # paths; `.gz` files are compressed
    feature_spec: dict[str, Feature]  # the features to parse
    most_rows: int = BLOCK_ROWS  # of a block

    # Least rows of a shuffle buffer that is shuffled in blocks: fewer are shuffled one by one
    # before the graph of a block shuffle is ready.
    block_shuffle_rows = 32_768

    @property
    def parts(self) -> int:
        """Number of files."""
        return len(self.files)

    def in_order(self) -> tf.data.Dataset:
        """Return all rows in blocks, from several files in turn."""
        return self.in_turn(tf.range(self.parts, dtype=tf.int64))

    def in_turn(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return all rows in blocks, from several files in turn; `order` are all files, int64.

        TFRecordDataset's num_parallel_reads returns rows one by one. This costs more per row than
        everything else here, and several times as much with a single file.
        """
        rows = block_rows(self.feature_spec, self.most_rows)
        paths = tf.gather(tf.constant(self.files), order)
        if self.parts == 1:
            return self._file(paths).batch(rows)
        at_a_time = min(_FILES_AT_A_TIME, self.parts)
        return tf.data.Dataset.from_tensor_slices(paths).interleave(
            lambda path: self._file(path).batch(rows),
            cycle_length=at_a_time,
            num_parallel_calls=at_a_time,
            deterministic=True,
        )

    def one_by_one(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return the rows of `in_turn` as single elements."""
        if self.parts == 1:
            return self._file(tf.constant(self.files))
        return self.in_turn(order).unbatch()

    def sampled(self, every: int) -> tf.data.Dataset:
        """Return each `every`-th row in blocks; the others are not parsed."""
        rows = self.in_order().unbatch().shard(every, 0)
        return rows.batch(block_rows(self.feature_spec, self.most_rows))

    def parse(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the features of serialized rows, each `[rows, ...]`."""
        padded = {n: f for n, f in self.feature_spec.items() if isinstance(f, PaddedFeature)}
        ragged = {name: tf.io.RaggedFeature(f.dtype) for name, f in padded.items()}
        found = tf.io.parse_example(rows, {**self.feature_spec, **ragged})
        dense = {n: found[n].to_tensor(shape=[None, *f.shape]) for n, f in padded.items()}
        return {**found, **dense}

    def _file(self, path: tf.Tensor) -> tf.data.Dataset:
        compressed = {file.endswith(".gz") for file in self.files}
        if len(compressed) > 1:
            raise ValueError(
                f"some of {self.files[0]}, ... are .gz and some are not: write all splits the same "
                "way."
            )
        return tf.data.TFRecordDataset(
            path,
            compression_type="GZIP" if compressed == {True} else "",
            buffer_size=_READ_BUFFER_BYTES,
        )
