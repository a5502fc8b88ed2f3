"""The most frequent value of every column of a `[batch, n]` matrix, in one pass.

Counts are exact for a column of up to `COUNTED` different values, so that neither the order of the
rows nor that of the merges matters; of values that are equally frequent, the smallest is taken.

With more different values, the counts are a mergeable summary of Misra and Gries (Agarwal et al.,
"Mergeable summaries", 2012): whenever a column holds more than 2 `COUNTED` counters, the
(`COUNTED` + 1)-th largest count is taken off all, and those without a rest are dropped. A count is
then too low by at most rows / (`COUNTED` + 1), and so is that of the value found below that of the
most frequent one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform import compat
from transform.analyzers.fitted import keep

MOST_FREQUENT = "most_frequent"  # what values are kept as that take the place of missing ones
COUNTED = 4096  # of a column without many equal values: about 1 MB, and 0.025 % of the rows

_Counts = dict[bytes | float, int]  # value -> count
_Counters = list[_Counts]  # one per column


def most_frequent(x: tf.Tensor) -> tf.Tensor:
    """Analyze the most frequent value of every column over the whole analysis data.

    Args:
        x: float64 `[batch, n]`, NaN where a value is missing; or string `[batch, n]`, empty where
            it is.

    Returns:
        `[n]` of the same type: NaN, or empty, for a column without any value.
    """
    is_text = x.dtype == tf.string
    combiner = MostFrequentCombiner(x.shape[1], is_text=is_text)
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


class MostFrequentCombiner(compat.Combiner):
    """Counts values; an accumulator is one dict of counts per column."""

    def __init__(self, size: int, *, is_text: bool, counted: int = COUNTED):
        """Count the values of `size` columns.

        Args:
            size: n, the number of columns.
            is_text: the values are texts, not numbers.
            counted: different values of a column that are counted exactly.
        """
        self._size, self._is_text, self._counted = size, is_text, counted

    def __repr__(self) -> str:
        return (
            f"<MostFrequentCombiner v1 size={self._size} is_text={self._is_text} "
            f"counted={self._counted}>"
        )

    def create_accumulator(self) -> _Counters:
        """Return `n` empty dicts."""
        return [{} for _ in range(self._size)]

    def add_input(self, accumulator: _Counters, batch_values: Sequence[np.ndarray]) -> _Counters:
        """Count the rows of one batch."""
        batch = np.asarray(batch_values[0])
        for column, counts in enumerate(accumulator):
            values = batch[:, column]
            present = values[values != b""] if self._is_text else values[~np.isnan(values)]
            self._add(counts, Counter(present.tolist()))
        return accumulator

    def merge(self, a: _Counters, b: _Counters) -> _Counters:
        """Add the counts of an accumulator to those of another one."""
        for counts, more in zip(a, b, strict=True):
            self._add(counts, more)
        return a

    def extract_output(self, accumulator: _Counters) -> list[np.ndarray]:
        """Return the value with the largest count, the smallest of those with equal counts."""
        nothing = b"" if self._is_text else np.nan
        found = [
            min(counts, key=lambda value: (-counts[value], value)) if counts else nothing
            for counts in accumulator
        ]
        return [np.asarray(found, object if self._is_text else np.float64)]

    def output_tensor_infos(self) -> list[compat.TensorInfo]:
        """Describe one `[n]` tensor, float64 or string."""
        dtype = tf.string if self._is_text else tf.float64
        return [compat.TensorInfo(dtype, [self._size], None)]

    @property
    def accumulator_coder(self) -> compat.CacheCoder:
        """The counts, as JSON."""
        return _CountersCoder()

    def _add(self, counts: _Counts, more: _Counts) -> None:
        for value, count in more.items():
            counts[value] = counts.get(value, 0) + count
        if len(counts) <= 2 * self._counted:
            return
        least = np.partition(np.fromiter(counts.values(), np.int64), -self._counted - 1)
        rest = {value: count - int(least[-self._counted - 1]) for value, count in counts.items()}
        counts.clear()
        counts.update((value, count) for value, count in rest.items() if count > 0)


class _CountersCoder(compat.CacheCoder):
    """Floats as JSON has them, which keeps every bit; the bytes of a text as Latin-1."""

    def encode_cache(self, cache: _Counters) -> bytes:
        def plain(value: bytes | float) -> str | float:
            return value.decode("latin-1") if isinstance(value, bytes) else value

        columns = [[[plain(value), n] for value, n in counts.items()] for counts in cache]
        return json.dumps(columns).encode()

    def decode_cache(self, encoded_cache: bytes) -> _Counters:
        def value_of(plain: str | float) -> bytes | float:
            return plain.encode("latin-1") if isinstance(plain, str) else plain

        columns = json.loads(encoded_cache)
        return [{value_of(plain): n for plain, n in counts} for counts in columns]
