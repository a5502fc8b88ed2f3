"""Statistics of one column over all rows, block by block, in memory independent of the rows.

Distinct values are counted exactly up to a limit. Beyond it their number is estimated from the
smallest hashes (k minimum values, Bar-Yossef et al., "Counting Distinct Elements in a Data Stream",
2002), within about 1 %, and their frequencies are unknown.
NaN, infinities and empty texts count as missing, as in Transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from pipeline.data.tables import beyond_int64
from pipeline.features.dates import DateCounter

_SMALLEST = 1 << 14  # hashes kept: standard error of the estimate below 1 %
_HASHES = float(1 << 64)
FLOAT_MERGES = 2.0**53  # whole numbers from here on may be equal in float64
_FEW_FLOATS = 1_000  # distinct floats counted exactly: most columns have as many as rows


class _Cells(NamedTuple):
    """The values of a block of a column.

    Attributes:
        values: The present values, as a numpy array of int64, float64 or str.
        per_row: Number of values in each row.
    """

    values: np.ndarray
    per_row: np.ndarray


def cells_of(column: pa.Array, kind: Kind) -> _Cells:
    """Return the present values of a flat array, or of an array of lists.

    Args:
        column: An array of a type that `ArrowExampleGen` creates for the kind.
        kind: Kind of its values.
    """
    rows = len(column)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        owners = np.asarray(pc.list_parent_indices(column))
        flat = column.flatten()
    else:
        owners, flat = np.arange(rows), column
    present = flat.is_valid().to_numpy(zero_copy_only=False)
    if kind == "string":
        values = _as_texts(flat).to_numpy(zero_copy_only=False)
        present = present & (values != "")
    elif kind == "float":
        values = flat.to_numpy(zero_copy_only=False).astype(np.float64)
        present = present & np.isfinite(values)
    else:
        values = flat.fill_null(0).to_numpy(zero_copy_only=False)
    return _Cells(values[present], np.bincount(owners[present], minlength=rows))


def _as_texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # some bytes are not UTF-8
        decoded = [None if v is None else v.decode(errors="replace") for v in values.to_pylist()]
        return pa.array(decoded, pa.string())


class _DistinctCounter:
    """The number of distinct values, and the frequencies of up to `limit` of them."""

    def __init__(self, limit: int, hashes: Callable[[Any], np.ndarray]):
        """Create a counter without values.

        Args:
            limit: Maximum number of distinct values that are counted exactly.
            hashes: Returns a uint64 for each value of an array.
        """
        self.limit, self._hashes = limit, hashes
        self.counts: dict[Any, int] | None = {}
        self._smallest = np.empty(0, np.uint64)
        self._waiting: list[np.ndarray] = []  # hashes that may be among the smallest

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Add distinct values with their frequencies."""
        if self.counts is None:
            self.add_uncounted(values)
            return
        known = self.counts
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            known[value] = known.get(value, 0) + count
        if len(known) > self.limit:
            self.add_uncounted(np.array(list(known), values.dtype))
            self.counts = None

    def add_uncounted(self, values: np.ndarray) -> None:
        """Add values, which may repeat; for when `counts` is None."""
        hashes = self._hashes(values)
        if len(self._smallest) == _SMALLEST:
            hashes = hashes[hashes < self._smallest[-1]]
        self._waiting.append(hashes)
        if sum(map(len, self._waiting)) > _SMALLEST:
            self._keep_smallest()

    @property
    def distinct(self) -> int:
        """The number of distinct values; an estimate if `counts` is None."""
        if self.counts is not None:
            return len(self.counts)
        self._keep_smallest()
        if len(self._smallest) < _SMALLEST:
            return len(self._smallest)
        return round((_SMALLEST - 1) * _HASHES / float(self._smallest[-1]))

    def _keep_smallest(self) -> None:
        self._smallest = np.unique(np.concatenate([self._smallest, *self._waiting]))[:_SMALLEST]
        self._waiting = []


class ColumnCounter:
    """Statistics of one column: rows, missing values, range, moments, distinct values."""

    def __init__(self, kind: Kind, limit: int):
        """Create a counter without rows.

        Args:
            kind: Kind of the values.
            limit: Maximum number of distinct values that are counted exactly.
        """
        self.kind: Kind = kind
        self.rows = self.missing = self.present = self.values = 0
        self.several = False
        self.minimum: Any = math.inf  # an int64, if the kind is int
        self.maximum: Any = -math.inf
        self._first: Any = None  # a number near the others: float64 holds what is above it
        self._mean = self._squares = 0.0
        self.zeros = self.characters = 0
        self.whole = True  # all numbers are whole
        self.increasing = kind != "string"  # each value exceeds the value of the previous row
        self.beyond: str | None = None
        self._all_whole_texts = kind == "string"
        limit = min(limit, _FEW_FLOATS) if kind == "float" else limit
        self.distinct = _DistinctCounter(limit, _text_hashes if kind == "string" else hash_numbers)
        self.dates = DateCounter(kind)

    def add(self, column: pa.Array) -> None:
        """Count a block of the column."""
        cells = cells_of(column, self.kind)
        self.rows += len(cells.per_row)
        with_value = int(np.count_nonzero(cells.per_row))
        self.present += with_value
        self.missing += len(cells.per_row) - with_value
        self.several |= bool(len(cells.per_row)) and int(cells.per_row.max()) > 1
        if not len(cells.values):
            return
        if self.kind == "string":
            different, counts = self._add_texts(cells.values)
            self.distinct.add(different, counts)
        else:
            self._add_numbers(cells.values)
            different = cells.values
            if self.distinct.counts is None:
                self.distinct.add_uncounted(different)
            else:
                self.distinct.add(*np.unique(different, return_counts=True))
        self.values += len(cells.values)
        self.dates.add(different)

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return float(self._first or 0) + self._mean

    @property
    def std(self) -> float:
        """The standard deviation of all values (population, not sample)."""
        return math.sqrt(self._squares / self.values) if self.values else 0.0

    @property
    def distinct_values(self) -> int:
        """The number of distinct values, at most `values`; exact if the values increase."""
        if self.increasing and not self.several:
            return self.values
        return min(self.distinct.distinct, self.values)

    def _add_texts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        encoded = pc.dictionary_encode(pa.array(values, pa.string()))
        texts = encoded.dictionary
        counts = np.bincount(encoded.indices.to_numpy(), minlength=len(texts))
        self.characters += int(np.dot(counts, pc.utf8_length(texts).to_numpy()))
        if self._all_whole_texts:
            self._look_for_beyond(texts)
        return texts.to_numpy(zero_copy_only=False), counts

    def _look_for_beyond(self, texts: pa.Array) -> None:
        whole = pc.match_substring_regex(texts, r"^\s*[+-]?\d+\s*$")
        if not pc.all(whole).as_py():
            self._all_whole_texts, self.beyond = False, None
        elif self.beyond is None:
            self.beyond = beyond_int64(texts.to_pylist())

    def _add_numbers(self, values: np.ndarray) -> None:
        low, high = values.min(), values.max()
        if self.increasing:
            after = self.values == 0 or low > self.maximum
            self.increasing = after and bool(np.all(values[1:] > values[:-1]))
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self.zeros += int(np.count_nonzero(values == 0))
        if self.kind == "float" and self.whole:
            self.whole = bool(np.all(values == np.floor(values)))
        # Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        # Variances" (1979): stable if the mean is large.
        above = values
        if self.kind == "int":  # exact in uint64
            if self._first is None:
                self._first = int(low)
            above = values.view(np.uint64) - low.view(np.uint64)
        above = above.astype(np.float64)
        count, mean = len(values), float(above.mean())
        both, apart = self.values + count, mean - self._mean
        if self.kind == "int":
            apart += int(low) - self._first
        self._squares += float(np.square(above - mean).sum())
        self._squares += apart * apart * self.values * count / both
        self._mean += apart * count / both


def hash_numbers(numbers: np.ndarray) -> np.ndarray:
    """Return a uint64 for each int64 or float64, with the finalizer of MurmurHash3."""
    found = numbers.view(np.uint64).copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found ^= found >> np.uint64(33)
        found *= np.uint64(factor)
    return found ^ (found >> np.uint64(33))


def _text_hashes(texts: Sequence[str] | np.ndarray) -> np.ndarray:
    import pandas as pd

    return pd.util.hash_array(np.asarray(texts, object), categorize=False)
