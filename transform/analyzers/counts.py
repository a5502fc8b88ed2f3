"""Counts of values: the most frequent one of every column of a `[batch, n]` matrix, in one pass.

Counts are exact for a column of up to `_COUNTED` different values, so that neither the order of the
rows nor that of the merges matters; of values that are equally frequent, the smallest is taken.

With more different values, the counts are a mergeable summary of Misra and Gries (Agarwal et al.,
"Mergeable summaries", 2012): whenever a column holds more than 2 `_COUNTED` counters, the
(`_COUNTED` + 1)-th largest count is taken off all, and those without a rest are dropped. A count is
then too low by at most rows / (`_COUNTED` + 1), and so is that of the value found below that of the
most frequent one.

Two more counts are kept in the transform graph for people (chains.py): the rows with a value of
each column that no scaler counts, and the values that `encode: date` cannot read, with one of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from transform import compat
from transform.analyzers.fitted import PRESENT, keep
from transform.block import Array, Block

MOST_FREQUENT = "most_frequent"  # what values are kept as that take the place of missing ones
_COUNTED = 4096  # of a column without many equal values: about 1 MB, and 0.025 % of the rows

_Counts = dict[bytes | float, int]  # value -> count
_Counters = list[_Counts]  # one per column


def most_frequent(x: tf.Tensor) -> tf.Tensor:
    """Analyze the most frequent value of every column over the whole analysis data.

    `x` is float64 `[batch, n]`, NaN where a value is missing, or string, empty there; so is the
    result `[n]`, of a column without any value.
    """
    is_text = x.dtype == tf.string
    combiner = _MostFrequentCombiner(x.shape[1], is_text=is_text)
    (values,) = compat.combine(combiner, x, name="most_frequent")
    return values


def fill_texts(texts: tf.Tensor, wanted: list[bool], names: Sequence[str]) -> tf.Tensor:
    """Return each column's most frequent text in place of empty ones, where `wanted` says so."""
    return _fill(texts, tf.equal(texts, ""), wanted, names)


def fill_numbers(x: tf.Tensor, wanted: list[bool], names: Sequence[str]) -> tf.Tensor:
    """Return each column's most frequent number in place of NaN, where `wanted` says so."""
    return _fill(x, tf.math.is_nan(x), wanted, names)


def _fill(x: tf.Tensor, missing: tf.Tensor, wanted: list[bool], names: Sequence[str]) -> tf.Tensor:
    members = np.flatnonzero(wanted)
    if not members.size:
        return x
    part = x if members.size == len(wanted) else tf.gather(x, members, axis=1)
    # Every column has a place; that of an unwanted one is never taken.
    place = np.maximum(np.cumsum(wanted) - 1, 0)
    found = keep(most_frequent(part), MOST_FREQUENT, [names[int(i)] for i in members])
    values = tf.gather(found, place)
    return tf.where(tf.logical_and(missing, np.asarray(wanted)), values, x)


class _MostFrequentCombiner(compat.Combiner):
    """Counts values; an accumulator is one dict of counts per column."""

    def __init__(self, size: int, *, is_text: bool, counted: int = _COUNTED):
        self._size, self._is_text, self._counted = size, is_text, counted
        self.outputs = [(tf.string if is_text else tf.float64, [size])]

    def __repr__(self) -> str:
        return (
            f"<MostFrequentCombiner v1 size={self._size} is_text={self._is_text} "
            f"counted={self._counted}>"
        )

    def create_accumulator(self) -> _Counters:
        return [{} for _ in range(self._size)]

    def add_input(self, accumulator: _Counters, batch_values: Sequence[np.ndarray]) -> _Counters:
        batch = np.asarray(batch_values[0])
        for column, counts in enumerate(accumulator):
            values = batch[:, column]
            present = values[values != b""] if self._is_text else values[~np.isnan(values)]
            self._add(counts, Counter(present.tolist()))
        return accumulator

    def merge(self, a: _Counters, b: _Counters) -> _Counters:
        for counts, more in zip(a, b, strict=True):
            self._add(counts, more)
        return a

    def extract_output(self, accumulator: _Counters) -> list[np.ndarray]:
        nothing = b"" if self._is_text else np.nan
        found = [
            min(counts, key=lambda value: (-counts[value], value)) if counts else nothing
            for counts in accumulator
        ]
        return [np.asarray(found, object if self._is_text else np.float64)]

    # Floats as JSON has them, which keeps every bit; the bytes of a text as Latin-1.

    def encode(self, accumulator: _Counters) -> bytes:
        def plain(value: bytes | float) -> str | float:
            return value.decode("latin-1") if isinstance(value, bytes) else value

        columns = [[[plain(value), n] for value, n in counts.items()] for counts in accumulator]
        return json.dumps(columns).encode()

    def decode(self, encoded: bytes) -> _Counters:
        def value_of(plain: str | float) -> bytes | float:
            return plain.encode("latin-1") if isinstance(plain, str) else plain

        columns = json.loads(encoded)
        return [{value_of(plain): n for plain, n in counts} for counts in columns]

    def _add(self, counts: _Counts, more: _Counts) -> None:
        for value, count in more.items():
            counts[value] = counts.get(value, 0) + count
        if len(counts) <= 2 * self._counted:
            return
        least = np.partition(np.fromiter(counts.values(), np.int64), -self._counted - 1)
        rest = {value: count - int(least[-self._counted - 1]) for value, count in counts.items()}
        counts.clear()
        counts.update((value, count) for value, count in rest.items() if count > 0)


def with_counts(blocks: Sequence[Block], counted: Collection[str]) -> list[Block]:
    """Return the blocks of all output columns, with the counts of their sources kept in the graph.

    Those of `counted` have been counted.
    """
    first: dict[str, tuple[int, int]] = {}  # source -> block, and place in it
    for at, block in enumerate(blocks):
        for place, source in enumerate(block.sources):
            if source not in counted:
                first.setdefault(source, (at, place))
    blocks = list(blocks)
    if not first:
        return blocks
    parts, names = [], []
    for at in dict.fromkeys(at for at, _ in first.values()):
        mine = {source: place for source, (of, place) in first.items() if of == at}
        parts.append(tf.gather(blocks[at].missing, list(mine.values()), axis=1))
        names += mine
    missing = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    present = tf.cast(tf.logical_not(missing), tf.int64)
    kept = keep(tft.sum(present, reduce_instance_dims=False), PRESENT, names)
    # What no output depends on is not saved.
    at, _ = next(iter(first.values()))
    with tf.control_dependencies([kept]):
        blocks[at] = blocks[at]._replace(values=tf.identity(blocks[at].values))
    return blocks


COUNTS = "date_counts"  # what `DateCounts` are kept as
EXAMPLES = "date_examples"  # string [n], empty where all are read


class DateCounts(NamedTuple):
    """Of each column; int64 `[n]` each."""

    given: Array  # values
    unread: Array  # those of them that are no date


def with_unread(
    block: Block, raw: tf.Tensor, given: tf.Tensor, missing: tf.Tensor, names: Sequence[str]
) -> Block:
    """Return `block`, made of dates, with counts and examples kept in the graph.

    `raw` is string or float64 `[batch, n]`; `given` says where the data has a value, `missing`
    where the encoder has none.
    """
    unread = tf.logical_and(given, missing)
    of_batch = DateCounts(*(tf.math.count_nonzero(which, axis=0) for which in (given, unread)))
    one_more = [[0, 1], [0, 0]]  # argmax takes no batch without rows
    row = tf.argmax(tf.pad(tf.cast(unread, tf.int32), one_more), axis=0)
    first = tf.gather(tf.transpose(tf.pad(raw, one_more)), row, batch_dims=1)
    shown = first if raw.dtype == tf.string else tf.strings.as_string(first, precision=0)
    examples = tf.where(of_batch.unread > 0, shown, "")
    counts, examples = compat.combine(
        _UnreadCombiner(len(names)), tf.stack(of_batch), examples, name="unread"
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


class _UnreadCombiner(compat.Combiner):
    """Adds counts; of the examples, the first in byte order is kept, whatever the shards."""

    def __init__(self, size: int):
        self._size = size
        self.outputs = [(tf.int64, [2, size]), (tf.string, [size])]

    def __repr__(self) -> str:
        return f"<UnreadCombiner v1 size={self._size}>"

    def create_accumulator(self) -> _Accumulator:
        return _Accumulator(np.zeros([2, self._size], np.int64), [b""] * self._size)

    def add_input(
        self, accumulator: _Accumulator, batch_values: Sequence[np.ndarray]
    ) -> _Accumulator:
        counts, examples = batch_values
        batch = _Accumulator(np.asarray(counts, np.int64), np.asarray(examples).tolist())
        return self.merge(accumulator, batch)

    def merge(self, a: _Accumulator, b: _Accumulator) -> _Accumulator:
        counts, examples = b
        pairs = zip(a.examples, examples, strict=True)
        return _Accumulator(a.counts + counts, [min(filter(None, p), default=b"") for p in pairs])

    def extract_output(self, accumulator: _Accumulator) -> list[np.ndarray]:
        return [accumulator.counts, np.asarray(accumulator.examples, object)]

    def encode(self, accumulator: _Accumulator) -> bytes:
        texts = [example.decode("latin-1") for example in accumulator.examples]
        return json.dumps([accumulator.counts.tolist(), texts]).encode()

    def decode(self, encoded: bytes) -> _Accumulator:
        counts, texts = json.loads(encoded)
        return _Accumulator(np.asarray(counts, np.int64), [t.encode("latin-1") for t in texts])
