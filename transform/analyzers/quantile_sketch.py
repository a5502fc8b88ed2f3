"""Quantiles of many columns in little memory, with a bound on their error.

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
from collections.abc import Mapping, Sequence

import numpy as np

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
        """Create a sketch without values.

        Args:
            columns: n.
            capacity: values of a level, even.
        """
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
        """Return the values of each column at the ranks `level / grid`.

        Args:
            levels: integers 0..grid; 0 and `grid` are the extremes of the column.
            grid: what they are shares of.

        Returns:
            float64 `[n, len(levels)]`; 0 for a column without any value.
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
