"""Quantile boundaries of every column of a `[batch, n]` matrix, in one analyzer.

`tft.quantiles` cannot be used on several columns: its sketch leaves a column without any value out
of its result, and what follows it moves up by one. Its sketch also takes several times the memory.

Median, quartiles and quantile bounds of the columns that want them are found likewise. Clipping is
monotone, so bounds, median and quartiles of the clipped values all come from one pass over the
values as they are. Mean and variance of the clipped values do not: a spec that asks for them is
refused.

A sketch holds sorted values at levels 0, 1, 2, ...; one at level h stands for 2^h values. Where a
level of a column has `capacity` values, every other one of them goes up a level and the rest is
dropped: the first, third, ... and the next time the second, fourth, .... Such a step moves the rank
of any number by at most 2^h, and of N values there are at most N / (2^h capacity) steps at level h:
L levels move a rank by at most N L / capacity. With

    capacity = L / epsilon,    2^L capacity >= 2^32

this is epsilon N for up to 2^32 values, in whatever order and however merged. Below `capacity`
values, all are there. Minimum and maximum always are. (J. I. Munro, M. S. Paterson, "Selection and
sorting with limited storage", 1980; the levels of Manku, Rajagopalan and Lindsay, 1998.)

The sketch of tfx_bsl, which `tft.quantiles` uses, has the same bound and spends 32 bytes on each
value that it holds, and more of them: several times as much memory (transform/README.md).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from transform import compat
from transform.block import QUANTILE_GRID
from transform.compat import from_bytes, to_bytes

_EPSILON = 0.01  # as tft.bucketize: error of a boundary's rank, as a share of all rows


def quantile_boundaries(x: tf.Tensor, buckets: int) -> tf.Tensor:
    """Analyze the inner quantiles of every column over the whole analysis data.

    `x` is float64 `[batch, n]`, NaN where a value is missing. The result is float64 `[n, buckets -
    1]`, ascending in each row; 0 for a column without any value.
    """
    combiner = _QuantilesCombiner(x.shape[1], buckets)
    (boundaries,) = compat.combine(combiner, x, name="quantiles")
    return boundaries


class _QuantilesCombiner(compat.Combiner):
    """Feeds batches into a sketch of all columns."""

    def __init__(self, size: int, buckets: int, levels: Sequence[int] | None = None):
        # levels: which of the boundaries 0 (minimum) to `buckets` (maximum); None: inner ones
        self._size, self._buckets = size, buckets
        self._levels = list(range(1, buckets) if levels is None else levels)
        self.outputs = [(tf.float64, [size, len(self._levels)])]

    def __repr__(self) -> str:
        return (
            f"<QuantilesCombiner v4 size={self._size} buckets={self._buckets} "
            f"levels={self._levels}>"
        )

    def create_accumulator(self) -> QuantileSketch:
        return QuantileSketch(self._size, capacity_for(min(1.0 / self._buckets, _EPSILON)))

    def add_input(
        self, accumulator: QuantileSketch, batch_values: Sequence[np.ndarray]
    ) -> QuantileSketch:
        accumulator.add(np.asarray(batch_values[0], np.float64))
        return accumulator

    def merge(self, a: QuantileSketch, b: QuantileSketch) -> QuantileSketch:
        a.merge(b)
        return a

    def compact(self, accumulator: QuantileSketch) -> QuantileSketch:
        accumulator.compact()
        return accumulator

    def extract_output(self, accumulator: QuantileSketch) -> list[np.ndarray]:
        return [accumulator.quantiles(self._levels, grid=self._buckets)]

    # TFT writes the cache through gzip at its default level, which takes several times as long on
    # sketches as the fastest level does, for hardly fewer bytes.

    def encode(self, accumulator: QuantileSketch) -> bytes:
        return zlib.compress(to_bytes(**accumulator.state()), level=1)

    def decode(self, encoded: bytes) -> QuantileSketch:
        return QuantileSketch.from_state(from_bytes(zlib.decompress(encoded)))


ORDER = "order"  # what `OrderStatistics` are kept as
_QUARTILES = tuple(QUANTILE_GRID * i // 4 for i in (1, 2, 3))


class Wanted(NamedTuple):
    """What of a column's order is of use.

    `bounds` are levels of quantiles that it is clipped at, multiples of 1 / `QUANTILE_GRID`;
    `quartiles` the median and both quartiles; `quantiles` all `QUANTILE_GRID` + 1.
    """

    bounds: tuple[float, float] | None = None
    quartiles: bool = False
    quantiles: bool = False


class OrderStatistics(NamedTuple):
    """Of the values that are not missing, after clipping; float64 `[n]` each.

    Quartiles and median are 0 for a column that has no use for them, or no value.
    """

    low: tf.Tensor  # bound, -inf where the column has no quantile bounds
    high: tf.Tensor
    lower_quartile: tf.Tensor
    median: tf.Tensor
    upper_quartile: tf.Tensor


class Order(NamedTuple):
    """What one analyzer of order finds."""

    statistics: OrderStatistics
    quantiles: tf.Tensor | None  # [columns that want them, QUANTILE_GRID + 1]; None: none does


def order_statistics(x: tf.Tensor, wanted: Sequence[Wanted]) -> Order:
    """Analyze the columns of `x` that want something; float64 `[batch, n]`, NaN where missing."""
    n = len(wanted)
    zero = tf.zeros([n], tf.float64)
    low, high = tf.fill([n], np.float64(-np.inf)), tf.fill([n], np.float64(np.inf))
    members = [i for i, each in enumerate(wanted) if any(each)]
    if not members:
        return Order(OrderStatistics(low, high, zero, zero, zero), None)
    bounds = {
        i: [round(level * QUANTILE_GRID) for level in each.bounds]
        for i, each in enumerate(wanted)
        if each.bounds is not None
    }
    ranked = [i for i, each in enumerate(wanted) if each.quantiles]
    levels = sorted({*_QUARTILES, *(level for pair in bounds.values() for level in pair)})
    if ranked:
        levels = list(range(QUANTILE_GRID + 1))
    row = {i: k for k, i in enumerate(members)}
    place = {level: k for k, level in enumerate(levels)}
    part = x if len(members) == n else tf.gather(x, members, axis=1)
    combiner = _QuantilesCombiner(len(members), QUANTILE_GRID, levels)
    (found,) = compat.combine(combiner, part, name="order_statistics")  # [members, levels]

    def spread(columns: Sequence[int], at: Sequence[int], otherwise: tf.Tensor) -> tf.Tensor:
        cells = [[row[i], place[level]] for i, level in zip(columns, at, strict=True)]
        return tf.tensor_scatter_nd_update(
            otherwise, [[i] for i in columns], tf.gather_nd(found, cells)
        )

    if bounds:
        low = spread(list(bounds), [pair[0] for pair in bounds.values()], low)
        high = spread(list(bounds), [pair[1] for pair in bounds.values()], high)
    quartiles = [spread(members, [level] * len(members), zero) for level in _QUARTILES]
    every = None
    if ranked:
        every = tf.gather(found, [row[i] for i in ranked])
        every = tf.clip_by_value(
            every, *(tf.gather(bound, ranked)[:, tf.newaxis] for bound in (low, high))
        )
    lower, median, upper = (tf.clip_by_value(q, low, high) for q in quartiles)
    return Order(OrderStatistics(low, high, lower, median, upper), every)


_MOST_VALUES = 2**32  # up to here the error is guaranteed


def capacity_for(epsilon: float) -> int:
    """Return the even number of values of a level that keeps the error of a rank in `epsilon`."""
    levels = 1
    while math.ceil(levels / epsilon) * 2**levels < _MOST_VALUES:
        levels += 1
    return 2 * math.ceil(levels / epsilon / 2)


class QuantileSketch:
    """One sketch for each of n columns; NaN counts as no value.

    The same values in the same order give the same sketch.
    """

    def __init__(self, columns: int, capacity: int):
        """Create a sketch of n columns without values; `capacity` is that of a level, even."""
        self._columns, self._capacity = columns, capacity
        self._rows: list[np.ndarray] = []  # [n, rows] as they came, below `capacity` in all
        self._levels: list[list[np.ndarray]] = []  # level -> column -> sorted values
        self._odd: list[np.ndarray] = []  # level -> bool [n]: the next step begins at the second
        self._low = np.full(columns, np.inf)
        self._high = np.full(columns, -np.inf)

    @property
    def held_bytes(self) -> int:
        """Bytes of the values that it holds."""
        arrays = [*self._rows, *(values for level in self._levels for values in level)]
        return sum(array.nbytes for array in arrays)

    def add(self, x: np.ndarray) -> None:
        """Add rows, float64 `[rows, n]`."""
        rows = np.array(x.T, np.float64, order="C")
        self._low = np.fmin(self._low, np.fmin.reduce(rows, axis=1, initial=np.inf))
        self._high = np.fmax(self._high, np.fmax.reduce(rows, axis=1, initial=-np.inf))
        self._rows.append(rows)
        if self._are_many():
            self.compact()

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another sketch of as many columns and the same capacity."""
        self._low = np.minimum(self._low, other._low)
        self._high = np.maximum(self._high, other._high)
        for level, columns in enumerate(other._levels):
            self._insert(level, columns)
            self._odd[level] = self._odd[level] ^ other._odd[level]
        self._rows += other._rows
        if self._are_many():
            self.compact()
        else:
            self._carry()

    def compact(self) -> None:
        """Sort the rows that came last into the levels."""
        if self._rows:
            taken, self._rows = self._rows, []
            columns = []
            for j in range(self._columns):
                values = np.concatenate([part[j] for part in taken])
                columns.append(np.sort(values[~np.isnan(values)]))
            self._insert(0, columns)
        self._carry()

    def quantiles(self, levels: Sequence[int], *, grid: int) -> np.ndarray:
        """Return the values of each column at the ranks `level / grid`, float64 `[n, levels]`.

        Levels 0 and `grid` are the extremes; a column without any value has 0.
        """
        self.compact()
        found = np.zeros([self._columns, len(levels)], np.float64)
        wanted = np.asarray(levels, np.int64)
        for j in range(self._columns):
            parts = [level[j] for level in self._levels]
            weights = [np.full(len(part), 2**h, np.int64) for h, part in enumerate(parts)]
            values = np.concatenate([*parts, np.empty(0)])
            if not len(values):
                continue
            order = np.argsort(values, kind="stable")
            ranks = np.cumsum(np.concatenate(weights)[order])
            # The first value of which more than the share has come.
            place = np.searchsorted(ranks, wanted * ranks[-1] // grid, side="right")
            at = values[order[np.minimum(place, len(values) - 1)]]
            at = np.where(wanted == 0, self._low[j], at)
            found[j] = np.where(wanted == grid, self._high[j], at)
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Return everything as arrays, for `from_state`."""
        self.compact()
        values = [column for level in self._levels for column in level]
        lengths = np.asarray([len(column) for column in values], np.int64)
        return {
            "capacity": np.asarray(self._capacity),
            "values": np.concatenate([*values, np.empty(0)]),
            "lengths": lengths.reshape([len(self._levels), self._columns]),
            "odd": np.asarray(self._odd, bool).reshape([len(self._levels), self._columns]),
            "extremes": np.stack([self._low, self._high]),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> QuantileSketch:
        """Return the sketch that `state` was made of."""
        lengths = state["lengths"]
        sketch = cls(lengths.shape[1], int(state["capacity"]))
        columns = np.split(state["values"], np.cumsum(lengths.ravel()))[:-1]
        for level, odd in enumerate(state["odd"]):
            start = level * lengths.shape[1]
            sketch._levels.append(columns[start : start + lengths.shape[1]])
            sketch._odd.append(odd)
        sketch._low, sketch._high = state["extremes"]
        return sketch

    def _are_many(self) -> bool:
        return sum(part.shape[1] for part in self._rows) >= self._capacity

    def _carry(self) -> None:
        level = 0
        while level < len(self._levels):  # a step may add one
            self._step(level)
            level += 1

    def _insert(self, level: int, columns: Sequence[np.ndarray]) -> None:
        while len(self._levels) <= level:
            self._levels.append([np.empty(0)] * self._columns)
            self._odd.append(np.zeros(self._columns, bool))
        held = self._levels[level]
        for j, values in enumerate(columns):
            held[j] = _merged(held[j], values)

    def _step(self, level: int) -> None:
        """Move every other value up where a column's level is full."""
        full = [j for j, held in enumerate(self._levels[level]) if len(held) >= self._capacity]
        if not full:
            return
        self._insert(level + 1, [])
        here, above, odd = self._levels[level], self._levels[level + 1], self._odd[level].copy()
        for j in full:
            even = len(here[j]) // 2 * 2
            above[j] = _merged(above[j], here[j][int(odd[j]) : even : 2])
            here[j] = here[j][even:].copy()
            odd[j] = not odd[j]
        self._odd[level] = odd


def _merged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return two sorted arrays as one, which is not a view of either."""
    if not len(a) or not len(b):
        return np.array(b if not len(a) else a)
    both = np.concatenate([a, b])
    both.sort(kind="stable")  # of two runs: one pass
    return both
