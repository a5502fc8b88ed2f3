"""Statistics of each column of a file, for `features suggest` and `init`.

Counts, ranges, moments and distinct values are those of all rows, which are read twice in blocks.
Percentiles, and the values that rules compare with the label, are from a sample: rows whose number
has a small hash, so that periodic data do not bias the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from components import CsvOptions
from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.decompress import content_name
from pipeline.common.errors import ConfigError
from pipeline.common.sources import SUFFIXES, Source, unknown_format
from pipeline.config.config import DataConfig
from pipeline.data.data_sources import files, place, source_of_folder
from pipeline.data.tables import (
    ColumnType,
    Rows,
    Value,
    check_features,
    config_errors,
    open_table,
)
from pipeline.features.column_counter import (
    FLOAT_MERGES,
    ColumnCounter,
    cells_of,
    hash_numbers,
)
from pipeline.features.dates import DateFacts, counted_dates, text_dates

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Table

_MAX_ROWS = 100_000
_TOP_VALUES = 1_000
_MOST_DISTINCT = 100_000  # distinct values per column that are counted exactly
_ALL_DISTINCT = 2_000_000  # in all columns together
_FEWEST_DISTINCT = 2_000


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
    increasing: bool = False  # each value exceeds the value of the previous row

    def at(self, percent: int) -> float:
        """Return a percentile."""
        return self.percentiles[percent]


@dataclass(frozen=True)
class Texts:
    """Statistics of the present values, with ints as decimal text."""

    distinct: int
    top: tuple[tuple[str, int], ...]  # the most frequent values with their counts
    average_length: float
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

    Attributes:
        rows: Number of rows in the file.
        every: One of `every` rows is in the sample, by a hash of its number.
        columns: Statistics of each column.
        values: Column -> the values of each row of the sample, None for none.
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
    max_rows: int = _MAX_ROWS,
) -> DataFacts:
    """Read a file and return the statistics of its columns.

    Args:
        path: A file, a folder of Parquet or Arrow files, a glob, or `package://...`.
        source: Its format; None: derived from its name.
        csv: The CSV dialect; None: the defaults, which detect most of it.
        max_rows: Approximate maximum number of rows in the sample. The sample of a longer file has
            at least about half as many.

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


def source_of(path: str) -> Source:
    """Return the format of a file by its name.

    Raises:
        ConfigError: The name does not identify the format, or the compression is not supported.
    """
    if Path(path).is_dir():
        return source_of_folder(Path(path))
    try:
        suffixes = Path(content_name(path)).suffixes
    except ValueError as error:
        raise ConfigError(f"--data: {error}") from None
    for suffix in reversed(suffixes):
        if suffix.lower() in SUFFIXES:
            return SUFFIXES[suffix.lower()]
    raise ConfigError(unknown_format(path))


def _measured(table: Table, max_rows: int) -> DataFacts:
    """Count all rows, and sample some of them."""
    import pyarrow as pa

    from components.arrow_example_gen.csv_table import CsvTable

    is_csv = isinstance(table, CsvTable)
    parts = [part for file in table.files for part in table.parts(file, whole=True)]
    examined = [(part, table.examine(part)) for part in parts]
    rows = sum(count for _, (count, _) in examined)
    if not rows:
        raise ConfigError("--data: no rows" + (" below the header line." if is_csv else "."))
    found, _, types = table.agree(examined)
    check_features(found)
    kinds: dict[str, Kind] = {name: kind or "string" for name, kind in found.items()}
    limit = min(max(_ALL_DISTINCT // len(kinds), _FEWEST_DISTINCT), _MOST_DISTINCT)
    counters = {name: ColumnCounter(kind, limit) for name, kind in kinds.items()}
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
        facts.append(_column(name, counter, cells_of(column, counter.kind).values))
        values[name] = _listed(column)
    return DataFacts(rows, every, tuple(facts), values)


def _sampled(start: int, rows: int, every: int) -> np.ndarray:
    """Return the sampled rows of a block: by a hash of the row number, and always the first row."""
    numbers = np.arange(start, start + rows, dtype=np.int64)
    hashes = hash_numbers(numbers)
    return np.flatnonzero((hashes & np.uint64(every - 1) == 0) | (numbers == 0))


def _listed(column: pa.Array) -> Rows:
    """Return the values of each row, or None for a row without values."""
    import pyarrow as pa

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
    import pyarrow as pa

    if pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type):
        filled = flat.fill_null(0).to_numpy(zero_copy_only=False).tolist()
        if not flat.null_count:
            return filled
        valid = flat.is_valid().to_numpy(zero_copy_only=False).tolist()
        return [value if there else None for value, there in zip(filled, valid, strict=True)]
    return flat.to_numpy(zero_copy_only=False).tolist()


def _column(name: str, counter: ColumnCounter, sampled: np.ndarray) -> ColumnFacts:
    """Return the statistics of a column; percentiles and very many values use the sample."""
    rows, missing = counter.rows, counter.missing
    if not counter.present:
        return ColumnFacts(name, "unknown", rows, missing=rows)
    texts = None if counter.kind == "float" else _texts(counter, sampled)
    dates = counted_dates(counter.dates)
    if dates is None and counter.kind == "int" and texts is not None:
        dates = _whole_dates(counter)
    return ColumnFacts(
        name=name,
        type=counter.kind,
        rows=rows,
        missing=missing,
        several=counter.several,
        numbers=None if counter.kind == "string" else _numbers(counter, sampled),
        texts=texts,
        dates=dates,
    )


def _whole_dates(counter: ColumnCounter) -> DateFacts | None:
    """Return the dates of ints such as 20130506, or None."""
    days = counter.distinct.counts
    if days is None or not (counter.minimum >= 19_000_101 and counter.maximum <= 20_991_231):
        return None
    written = [str(day) for day in days]
    return text_dates(written, (), written, without_time=True)


def _numbers(counter: ColumnCounter, sampled: np.ndarray) -> Numbers:
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
        mean=counter.mean,
        std=counter.std,
        zeros=counter.zeros,
        percentiles=(low, *inner, high),
        distinct=counter.distinct_values,
        whole=counter.whole,
        increasing=counter.increasing,
    )


def _texts(counter: ColumnCounter, sampled: np.ndarray) -> Texts:
    counts = counter.distinct.counts
    if counts is None:
        found, times = np.unique(sampled, return_counts=True)
        share = counter.values / max(1, len(sampled))
        counts = {v: round(n * share) for v, n in zip(found.tolist(), times.tolist(), strict=True)}
    # Ties are sorted, so that the order of the rows does not matter.
    top = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_TOP_VALUES]
    return Texts(
        counter.distinct_values,
        tuple((str(value), count) for value, count in top),
        counter.characters / counter.values,
        counter.beyond,
        exact=counter.distinct.counts is not None,
    )
