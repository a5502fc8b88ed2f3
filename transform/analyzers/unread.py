"""Values that `encode: date` cannot read: how many, and one of them.

Unread values are missing to the model. What is kept here in the transform graph is for people:
cautions.py says it at the end of a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.aliases import Array
from transform.analyzers.fitted import keep
from transform.block import Block

COUNTS = "date_counts"  # what `DateCounts` are kept as
EXAMPLES = "date_examples"  # string [n], empty where all are read


class DateCounts(NamedTuple):
    """Of each column; int64 `[n]` each."""

    given: Array  # values
    unread: Array  # those of them that are no date


def with_unread(
    block: Block, raw: tf.Tensor, given: tf.Tensor, missing: tf.Tensor, names: Sequence[str]
) -> Block:
    """Return `block`, with counts and examples kept in the graph.

    Args:
        block: made of the dates.
        raw: string or float64 `[batch, n]`.
        given: bool `[batch, n]`, where the data has a value.
        missing: bool `[batch, n]`, where the encoder has none.
        names: of the columns.
    """
    unread = tf.logical_and(given, missing)
    of_batch = DateCounts(*(tf.math.count_nonzero(which, axis=0) for which in (given, unread)))
    one_more = [[0, 1], [0, 0]]  # argmax takes no batch without rows
    row = tf.argmax(tf.pad(tf.cast(unread, tf.int32), one_more), axis=0)
    first = tf.gather(tf.transpose(tf.pad(raw, one_more)), row, batch_dims=1)
    shown = first if raw.dtype == tf.string else tf.strings.as_string(first, precision=0)
    examples = tf.where(of_batch.unread > 0, shown, "")
    counts, examples = compat.combine(
        UnreadCombiner(len(names)), tf.stack(of_batch), examples, name="unread"
    )
    kept = [
        keep(counts, COUNTS, names, fields=DateCounts._fields),
        keep(examples, EXAMPLES, names),
    ]
    with tf.control_dependencies(kept):  # what no output depends on is not saved
        return block._replace(values=tf.identity(block.values))


class _Accumulator(NamedTuple):
    counts: np.ndarray  # int64 [2, n], a field of `DateCounts` each
    examples: list[bytes]


class UnreadCombiner(compat.Combiner):
    """Adds counts; of the examples, the first in byte order is kept, whatever the shards."""

    def __init__(self, size: int):
        self._size = size

    def __repr__(self) -> str:
        return f"<UnreadCombiner v1 size={self._size}>"

    def create_accumulator(self) -> _Accumulator:
        """Return counts of 0 and empty examples."""
        return _Accumulator(np.zeros([2, self._size], np.int64), [b""] * self._size)

    def add_input(
        self, accumulator: _Accumulator, batch_values: Sequence[np.ndarray]
    ) -> _Accumulator:
        """Add one batch's counts and examples."""
        counts, examples = batch_values
        batch = _Accumulator(np.asarray(counts, np.int64), np.asarray(examples).tolist())
        return self.merge(accumulator, batch)

    def merge(self, a: _Accumulator, b: _Accumulator) -> _Accumulator:
        """Add counts, and keep the first examples."""
        counts, examples = b
        pairs = zip(a.examples, examples, strict=True)
        return _Accumulator(a.counts + counts, [min(filter(None, p), default=b"") for p in pairs])

    def extract_output(self, accumulator: _Accumulator) -> list[np.ndarray]:
        """Return int64 `[2, n]` and string `[n]`."""
        return [accumulator.counts, np.asarray(accumulator.examples, object)]

    def output_tensor_infos(self) -> list[compat.TensorInfo]:
        """Describe int64 `[2, n]` and string `[n]`."""
        return [
            compat.TensorInfo(tf.int64, [2, self._size], None),
            compat.TensorInfo(tf.string, [self._size], None),
        ]

    @property
    def accumulator_coder(self) -> compat.CacheCoder:
        """Both as JSON."""
        return _AccumulatorCoder()


class _AccumulatorCoder(compat.CacheCoder):
    def encode_cache(self, cache: _Accumulator) -> bytes:
        texts = [example.decode("latin-1") for example in cache.examples]
        return json.dumps([cache.counts.tolist(), texts]).encode()

    def decode_cache(self, encoded_cache: bytes) -> _Accumulator:
        counts, texts = json.loads(encoded_cache)
        return _Accumulator(
            np.asarray(counts, np.int64), [text.encode("latin-1") for text in texts]
        )
