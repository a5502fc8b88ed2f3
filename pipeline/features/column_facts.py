"""Statistics of each column of a file, for `init`, block by block.

Counts, ranges and distinct values are those of all rows. Means, percentiles, and the values that
rules compare with the label, are from a sample: rows whose number has a small hash, so that
periodic data do not bias the sample. Distinct values are counted exactly up to a limit. Beyond it
their number is estimated from the smallest hashes (k minimum values, Bar-Yossef et al., "Counting
Distinct Elements in a Data Stream", 2002), within about 1 %, and their frequencies are those of the
sample. NaN, infinities and empty texts count as missing, as in Transform.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components import CsvOptions
from components.arrow_example_gen.columns import Kind
from pipeline.common.errors import ConfigError
from pipeline.common.sources import Source
from pipeline.config.config import DataConfig
from pipeline.data.data_sources import files, place, source_of
from pipeline.data.tables import (
    ColumnType,
    Rows,
    Value,
    beyond_int64,
    check_features,
    config_errors,
    open_table,
)
from pipeline.features.dates import DateFacts, number_dates, text_dates

if TYPE_CHECKING:
    from components.arrow_example_gen.columns import Table

_TOP_VALUES = 1_000
_MOST_DISTINCT = 100_000  # distinct values per column that are counted exactly
_ALL_DISTINCT = 2_000_000  # in all columns together
_FEWEST_DISTINCT = 2_000
_FEW_FLOATS = 1_000  # distinct floats counted exactly: most columns have as many as rows
_SMALLEST = 1 << 14  # hashes kept: standard error of the estimate below 1 %
FLOAT_MERGES = 2.0**53  # whole numbers from here on may be equal in float64


@dataclass(frozen=True)
class Numbers:
    """Statistics of the present values; those of whole numbers are ints where float64 merges."""

    minimum: float  # an int in a column of them, as is `maximum`
    maximum: float
    mean: float
    std: float
    zeros: int
    percentiles: tuple[float, ...]  # 101: for 0, 1, ... 100 %, of the sample
    distinct: int = 0  # 0: unknown
    whole: bool = False  # no value has a fraction

    def at(self, percent: int) -> float:
        """Return a percentile."""
        return self.percentiles[percent]


@dataclass(frozen=True)
class Texts:
    """Statistics of the present values, with ints as decimal text."""

    distinct: int
    top: tuple[tuple[str, int], ...]  # the most frequent values with their counts
    beyond: str | None = None  # if all are integers: one beyond int64, the reason for text
    exact: bool = True  # else `distinct` is estimated, and `top` is scaled up from the sample

    @property
    def number(self) -> str:
        """The number of distinct values as text."""
        return f"{self.distinct:,}" if self.exact else f"about {self.distinct:,}"


@dataclass(frozen=True)
class ColumnFacts:
    """Statistics of one column.

    Attributes:
        name: Name of the column.
        type: Type in Transform; unknown if no row has a value.
        rows: Number of rows in the file.
        missing: Number of rows without a value.
        several: Whether a row may have more than one value.
        numbers: Statistics of an int or float column.
        texts: Statistics of a string or int column.
        dates: Statistics of a column of dates, or of ints that may be times since 1970.
    """

    name: str
    type: ColumnType
    rows: int
    missing: int
    several: bool = False
    numbers: Numbers | None = None
    texts: Texts | None = None
    dates: DateFacts | None = None

    @property
    def present(self) -> int:
        """The number of rows with a value."""
        return self.rows - self.missing

    @property
    def missing_share(self) -> float:
        """The share of rows without a value, in [0, 1]."""
        return self.missing / self.rows


@dataclass(frozen=True)
class DataFacts:
    """Statistics of all columns of a file.

    One of `every` rows is in the sample, by a hash of its number. `values` are those of each row of
    the sample, None for none.
    """

    rows: int
    every: int
    columns: tuple[ColumnFacts, ...]
    values: Mapping[str, Rows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def sample_rows(self) -> int:
        """The number of rows in the sample."""
        return len(next(iter(self.values.values()), ()))

    @cached_property
    def distinct_rows(self) -> int:
        """The number of distinct rows in the sample."""
        columns = [[None if row is None else tuple(row) for row in c] for c in self.values.values()]
        return len(set(zip(*columns, strict=True))) if columns else self.rows


def measure(
    path: str,
    *,
    source: Source | None = None,
    csv: CsvOptions | None = None,
    max_rows: int = 100_000,
) -> DataFacts:
    """Read a file, a folder, a glob or `package://...`; return the statistics of its columns.

    The sample has at most about `max_rows` rows, and of a longer file at least half as many.

    Raises:
        ConfigError: The file does not exist, is empty, has another format or no row.
    """
    data = DataConfig(source=source or source_of(path), path=path, csv=csv or CsvOptions())
    found = files(path, "--data", source=data.source, base="the working directory")
    try:
        folder, _ = place(path, "--data", source=data.source)
        with config_errors():
            return _measured(open_table(found, data.source, data.csv, folder), max_rows)
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.source", "--source")) from None


def _measured(table: Table, max_rows: int) -> DataFacts:
    """Count all rows, and sample some of them."""
    from components.arrow_example_gen.csv_table import CsvTable
    from components.arrow_example_gen.images import IMAGE, ImageTable

    is_csv = isinstance(table, CsvTable)
    parts = [part for file in table.files for part in table.parts(file, whole=True)]
    examined = [(part, table.examine(part)) for part in parts]
    rows = sum(count for _, (count, _) in examined)
    if not rows:
        raise ConfigError("--data: no rows" + (" below the header line." if is_csv else "."))
    found, _, types = table.agree(examined)
    check_features(found)
    kinds: dict[str, Kind] = {name: kind or "string" for name, kind in found.items()}
    if isinstance(table, ImageTable):
        kinds.pop(IMAGE)  # no statistic of bytes says anything of an image
    limit = min(max(_ALL_DISTINCT // len(kinds), _FEWEST_DISTINCT), _MOST_DISTINCT)
    counters = {name: _ColumnCounter(kind, limit) for name, kind in kinds.items()}
    every = 1
    while rows > every * max_rows:
        every *= 2
    sampled: dict[str, list[pa.Array]] = {name: [] for name in counters}
    start = 0
    for block in table.all_blocks(list(kinds)):
        if is_csv:  # numbers are counted before they are rounded to float32
            columns = [table.typed(block, name, types) for name in kinds]
        else:
            columns = table.decoded(block, kinds, types)
        indices = pa.array(_sampled(start, len(block.places), every))
        for (name, counter), column in zip(counters.items(), columns, strict=True):
            counter.add(column)
            sampled[name].append(column.take(indices))
        start += len(block.places)
    facts, values = [], {}
    for name, counter in counters.items():
        column = pa.concat_arrays(sampled.pop(name))
        facts.append(_column(name, counter, _cells(column, counter.kind)[0]))
        values[name] = _listed(column)
    return DataFacts(rows, every, tuple(facts), values)


def _sampled(start: int, rows: int, every: int) -> np.ndarray:
    """Return the sampled rows of a block: by a hash of the row number, and always the first row."""
    numbers = np.arange(start, start + rows, dtype=np.int64)
    return np.flatnonzero((_hashes(numbers) & np.uint64(every - 1) == 0) | (numbers == 0))


def _listed(column: pa.Array) -> Rows:
    """Return the values of each row, or None for a row without values."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return [None if value is None else [value] for value in _to_list(column)]
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)).tolist()
    values, rows = _to_list(column.flatten()), column.is_valid().to_pylist()
    starts = [0, *ends]
    return [
        values[start:end] if present else None
        for start, end, present in zip(starts, ends, rows, strict=False)
    ]


def _to_list(flat: pa.Array) -> list[Value]:
    """Return the same as `to_pylist`, but without a slow Arrow object per value."""
    if pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type):
        filled = flat.fill_null(0).to_numpy(zero_copy_only=False).tolist()
        if not flat.null_count:
            return filled
        valid = flat.is_valid().to_numpy(zero_copy_only=False).tolist()
        return [value if there else None for value, there in zip(filled, valid, strict=True)]
    return flat.to_numpy(zero_copy_only=False).tolist()


def _column(name: str, counter: _ColumnCounter, sampled: np.ndarray) -> ColumnFacts:
    """Return the statistics of a column; percentiles and very many values use the sample."""
    if not counter.present:
        return ColumnFacts(name, "unknown", counter.rows, missing=counter.rows)
    numbers = texts = dates = None
    if counter.kind != "string":
        numbers = _numbers(counter, sampled)
    if counter.kind != "float":
        counts = counter.distinct.counts
        if counts is None:
            values, times = np.unique(sampled, return_counts=True)
            share = counter.values / max(1, len(sampled))
            counts = dict(zip(values.tolist(), np.round(times * share).astype(int), strict=True))
        texts = _texts(counter, counts)
        if numbers is None:
            dates = text_dates(list(counts))
        else:
            dates = number_dates(list(counts), int(numbers.minimum), int(numbers.maximum))
    return ColumnFacts(
        *(name, counter.kind, counter.rows, counter.missing, counter.several),
        *(numbers, texts, dates),
    )


def _numbers(counter: _ColumnCounter, sampled: np.ndarray) -> Numbers:
    low, high = counter.minimum.item(), counter.maximum.item()
    if not len(sampled):  # its few values are all in other rows
        sampled = np.array([low, high])
    # The nearest value, where one in between would be rounded to a float.
    merges = counter.kind == "int" and max(abs(low), abs(high)) >= FLOAT_MERGES
    method = "nearest" if merges else "linear"
    inner = np.percentile(sampled, np.arange(1, 100), method=method).tolist()
    return Numbers(
        minimum=low,
        maximum=high,
        mean=float(sampled.mean()),
        std=float(sampled.std()),
        zeros=counter.zeros,
        percentiles=(low, *inner, high),
        distinct=counter.distinct_values,
        whole=counter.whole,
    )


def _texts(counter: _ColumnCounter, counts: Mapping[Any, int]) -> Texts:
    # Ties are sorted, so that the order of the rows does not matter.
    top = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_TOP_VALUES]
    return Texts(
        counter.distinct_values,
        tuple((str(value), int(count)) for value, count in top),
        counter.beyond,
        exact=counter.distinct.counts is not None,
    )


def _cells(column: pa.Array, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """Return the present values (int64, float64 or str) of a column, and each row's number."""
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
    return values[present], np.bincount(owners[present], minlength=rows)


def _as_texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # some bytes are not UTF-8
        decoded = [None if v is None else v.decode(errors="replace") for v in values.to_pylist()]
        return pa.array(decoded, pa.string())


class _DistinctCounter:
    """The number of distinct values, and the frequencies of up to `limit` of them."""

    def __init__(self, limit: int):
        self.limit = limit
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
        hashes = _hashes(values)
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
        return round((_SMALLEST - 1) * 2.0**64 / float(self._smallest[-1]))

    def _keep_smallest(self) -> None:
        self._smallest = np.unique(np.concatenate([self._smallest, *self._waiting]))[:_SMALLEST]
        self._waiting = []


class _ColumnCounter:
    """Statistics of one column: rows, missing values, range, moments, distinct values."""

    def __init__(self, kind: Kind, limit: int):
        self.kind: Kind = kind
        self.rows = self.missing = self.present = self.values = 0
        self.several = False
        self.minimum: Any = math.inf  # an int64, if the kind is int
        self.maximum: Any = -math.inf
        self.zeros = 0
        self.whole = True  # all numbers are whole
        self.increasing = kind != "string"  # each value exceeds the value of the previous row
        self.beyond: str | None = None
        self._all_whole_texts = kind == "string"
        limit = min(limit, _FEW_FLOATS) if kind == "float" else limit
        self.distinct = _DistinctCounter(limit)

    def add(self, column: pa.Array) -> None:
        """Count a block of the column."""
        values, per_row = _cells(column, self.kind)
        self.rows += len(per_row)
        with_value = int(np.count_nonzero(per_row))
        self.present += with_value
        self.missing += len(per_row) - with_value
        self.several |= bool(len(per_row)) and int(per_row.max()) > 1
        if not len(values):
            return
        if self.kind == "string":
            self._add_texts(values)
        else:
            self._add_numbers(values)
            if self.distinct.counts is None:
                self.distinct.add_uncounted(values)
            else:
                self.distinct.add(*np.unique(values, return_counts=True))
        self.values += len(values)

    @property
    def distinct_values(self) -> int:
        """The number of distinct values, at most `values`; exact if the values increase."""
        if self.increasing and not self.several:
            return self.values
        return min(self.distinct.distinct, self.values)

    def _add_texts(self, values: np.ndarray) -> None:
        encoded = pc.dictionary_encode(pa.array(values, pa.string()))
        texts = encoded.dictionary
        counts = np.bincount(encoded.indices.to_numpy(), minlength=len(texts))
        if self._all_whole_texts:
            if not pc.all(pc.match_substring_regex(texts, r"^\s*[+-]?\d+\s*$")).as_py():
                self._all_whole_texts, self.beyond = False, None
            elif self.beyond is None:
                self.beyond = beyond_int64(texts.to_pylist())
        self.distinct.add(texts.to_numpy(zero_copy_only=False), counts)

    def _add_numbers(self, values: np.ndarray) -> None:
        low, high = values.min(), values.max()
        if self.increasing:
            after = self.values == 0 or low > self.maximum
            self.increasing = after and bool(np.all(values[1:] > values[:-1]))
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self.zeros += int(np.count_nonzero(values == 0))
        if self.kind == "float" and self.whole:
            self.whole = bool(np.all(values == np.floor(values)))


def _hashes(values: np.ndarray) -> np.ndarray:
    """Return a uniform uint64 for each number or text."""
    import pandas as pd

    return pd.util.hash_array(values, categorize=False)
