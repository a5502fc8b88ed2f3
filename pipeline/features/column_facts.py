"""What TFDV measures of each column of a file, for `features suggest`.

Up to `MAX_ROWS` rows, spread evenly over the file, go through TFDV's own statistics. NaN,
infinities and empty texts are left out before, because Transform takes them as missing: TFDV's
count of missing values is then Transform's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from components import CsvOptions
from pipeline.common.errors import ConfigError
from pipeline.common.sources import COLUMNAR, SOURCES, SUFFIXES, Source
from pipeline.config.config import DataConfig
from pipeline.data.csv_files import ColumnType, beyond_int64, csv_blocks, open_csv
from pipeline.data.data_sources import files, place
from pipeline.data.peek import open_parquet
from pipeline.data.tfrecord_files import kinds_of, tfrecord_blocks

if TYPE_CHECKING:
    import pyarrow as pa
    from tensorflow_metadata.proto.v0 import statistics_pb2

MAX_ROWS = 100_000
TOP_VALUES = 1_000
_AS_TEXT = "\x1f"  # before an int column's name: the same values, counted as texts


@dataclass(frozen=True)
class Numbers:
    """Of the values present."""

    minimum: float
    maximum: float
    mean: float
    std: float
    zeros: int
    percentiles: tuple[float, ...]  # 101: of 0, 1, ... 100 %

    def at(self, percent: int) -> float:
        """A percentile."""
        return self.percentiles[percent]


@dataclass(frozen=True)
class Texts:
    """Of the values present, ints as decimal text."""

    distinct: int
    top: tuple[tuple[str, int], ...]  # the most frequent, with their counts
    average_length: float
    beyond: str | None = None  # of whole numbers, one that int64 does not hold: it made them text


@dataclass(frozen=True)
class ColumnFacts:
    """One column.

    Attributes:
        type: as Transform will see it; unknown where no row has a value.
        rows: rows measured.
        missing: those without a value.
        several: a row may hold more than one value.
        numbers: of an int or float column.
        texts: of a string or int column.
    """

    name: str
    type: ColumnType
    rows: int
    missing: int
    several: bool = False
    numbers: Numbers | None = None
    texts: Texts | None = None

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - self.missing

    @property
    def missing_share(self) -> float:
        """Share of rows without a value, in [0, 1]."""
        return self.missing / self.rows


@dataclass(frozen=True)
class DataFacts:
    """All columns of a file.

    Attributes:
        rows: rows in the file.
        every: each `every`-th of them was measured.
        values: column -> the values of each measured row, None for none.
    """

    rows: int
    every: int
    columns: tuple[ColumnFacts, ...]
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False, compare=False)


def measure(
    path: str,
    *,
    source: Source | None = None,
    csv: CsvOptions | None = None,
    max_rows: int = MAX_ROWS,
) -> DataFacts:
    """Reads a file and measures its columns.

    Args:
        path: a file, a glob, or `package://...`.
        source: its format; None: by its name.
        csv: how a CSV file is written; None: that is found by itself.
        max_rows: rows measured at most, at least half as many of a longer file.

    Raises:
        ConfigError: no such file, an empty one, one of another format or without a row.
    """
    data = DataConfig(source=source or source_of(path), path=path, csv=csv or CsvOptions())
    found = files(path, "--data", source=data.source, base="the working directory")
    try:
        if data.source in COLUMNAR:
            folder, _ = place(path, "--data", source=data.source)
            rows, every, columns = _read_parquet(found, folder, max_rows)
        elif data.source == "tfrecord":
            rows, every, columns = _read_tfrecord(found, max_rows)
        else:
            rows, every, columns = _read_csv(found, data.csv, max_rows)
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.source", "--source")) from None
    return DataFacts(rows, every, _facts(columns), columns)


def source_of(path: str) -> Source:
    """A file's format by its name.

    Raises:
        ConfigError: its name does not tell.
    """
    if Path(path).is_dir():
        return "parquet"
    suffixes = Path(path.removesuffix(".gz")).suffixes
    for suffix in reversed(suffixes):
        if suffix.lower() in SUFFIXES:
            return SUFFIXES[suffix.lower()]
    raise ConfigError(
        f"--data={path}: its name does not tell its format; add --source, one of "
        + ", ".join(SOURCES)
    )


_Rows = list[list[Any] | None]  # a column: the values of each row


def _read_csv(
    found: list[Path], options: CsvOptions, limit: int
) -> tuple[int, int, dict[str, _Rows]]:
    """Every 2^k-th row, by the types that all rows give."""
    import pyarrow as pa

    from components.arrow_example_gen import csv_types

    table = open_csv(found, options)
    every, count = 1, 0
    counts: csv_types.Counts | None = None
    kept: list[pa.RecordBatch] = []
    for _, block in csv_blocks(table):
        seen = csv_types.count(block)
        counts = seen if counts is None else csv_types.together([counts, seen])
        kept.append(_every(block, count, every))
        count += block.num_rows
        while -(-count // every) > limit:
            first = 0
            for i, part in enumerate(kept):
                kept[i] = _every(part, first, 2)
                first += part.num_rows
            every *= 2
    if counts is None:
        raise ConfigError("--data: no rows below the header line.")
    try:
        types = table.types(counts)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    columns: dict[str, _Rows] = {}
    for i, name in enumerate(table.columns):
        values = types.converted(name, pa.concat_arrays([part[i] for part in kept])).to_pylist()
        columns[name] = [None if value is None else [value] for value in values]
    return count, every, columns


def _every(block: pa.RecordBatch, first: int, every: int) -> pa.RecordBatch:
    """The rows of a block whose number, with the block's first row as `first`, `every` divides."""
    import pyarrow as pa

    return block.take(pa.array(np.arange(-first % every, block.num_rows, every)))


def _read_parquet(found: list[Path], folder: str, limit: int) -> tuple[int, int, dict[str, _Rows]]:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind
    from components.arrow_example_gen.parquet import batches, row_lists

    table = open_parquet(found, folder)
    if table.rows == 0:
        raise ConfigError("--data: no rows.")
    every = 1
    while table.rows > every * limit:
        every *= 2
    columns: dict[str, _Rows] = {name: [] for name in table.columns}
    kinds: dict[str, Kind] = {name: kind or "string" for name, kind in table.columns.items()}
    start = 0
    for group in table.groups:
        first = start  # of the group
        for batch in batches(group, list(kinds)):
            wanted = np.arange(-start % every, batch.num_rows, every)
            numbers = (wanted + start - first).tolist()
            lists = row_lists(batch.take(pa.array(wanted)), kinds, group, rows=numbers)
            for name, values in zip(kinds, lists, strict=True):
                columns[name].extend(values.to_pylist())
            start += batch.num_rows
    return table.rows, every, columns


def _read_tfrecord(found: list[Path], limit: int) -> tuple[int, int, dict[str, _Rows]]:
    """Every 2^k-th record, by the types that all records give."""
    import pyarrow as pa

    from components.arrow_example_gen import tfrecord_table

    features: dict[str, tfrecord_table.Seen] = {}
    count = 0
    for block, seen in tfrecord_blocks(found):
        features = tfrecord_table.together([features, seen])
        count += block.rows
    if not count:
        raise ConfigError("--data: no rows.")
    kinds = kinds_of([features])
    every = 1
    while count > every * limit:
        every *= 2
    columns: dict[str, _Rows] = {name: [] for name in kinds}
    start = 0
    for block, _ in tfrecord_blocks(found):
        (batch,) = tfrecord_table.as_batches([block], kinds)
        wanted = pa.array(np.arange(-start % every, block.rows, every))
        for name, values in zip(kinds, batch.columns, strict=True):
            columns[name].extend(values.take(wanted).to_pylist())
        start += block.rows
    return count, every, columns


def _facts(columns: dict[str, _Rows]) -> tuple[ColumnFacts, ...]:
    import pyarrow as pa
    import tensorflow_data_validation as tfdv
    from tensorflow_data_validation.statistics import stats_impl

    arrays: dict[str, pa.Array] = {}
    beyond: dict[str, str | None] = {}
    for name, rows in columns.items():
        cleaned = [_present_values(row) for row in rows]
        kind = _type_of(cleaned)
        if kind in ("int", "float"):
            parse, dtype = (int, pa.int64()) if kind == "int" else (float, pa.float64())
            numbers = [None if row is None else [parse(v) for v in row] for row in cleaned]
            arrays[name] = pa.array(numbers, pa.list_(dtype))
        if kind in ("int", "string"):
            texts = [None if row is None else [str(v) for v in row] for row in cleaned]
            label = name if kind == "string" else _AS_TEXT + name
            arrays[label] = pa.array(texts, pa.list_(pa.string()))
        if kind == "string":
            beyond[name] = beyond_int64(chain.from_iterable(row for row in texts if row))
    options = tfdv.StatsOptions(
        num_top_values=1,
        num_rank_histogram_buckets=TOP_VALUES,
        num_quantiles_histogram_buckets=100,
        epsilon=0.001,
    )
    # As tfdv.generate_statistics_from_dataframe does, which takes no lists.
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    found = stats_impl.generate_statistics_in_memory(batch, options) if arrays else None
    features = {f.path.step[0]: f for f in found.datasets[0].features} if found else {}
    return tuple(
        _column(name, len(rows), features, beyond.get(name)) for name, rows in columns.items()
    )


def _present_values(row: Sequence[Any] | None) -> list[Any] | None:
    """The values that Transform does not take as missing; None where there is none."""
    values = []
    for value in row or ():
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if text is None or text == "" or (isinstance(text, float) and not math.isfinite(text)):
            continue
        values.append(text)
    return values or None


def _type_of(rows: Sequence[list[Any] | None]) -> ColumnType:
    found: ColumnType = "unknown"
    for value in chain.from_iterable(row for row in rows if row):
        if isinstance(value, str):
            return "string"
        if isinstance(value, float):
            found = "float"
        elif found == "unknown":
            found = "int"
    return found


def _column(
    name: str,
    rows: int,
    features: Mapping[str, statistics_pb2.FeatureNameStatistics],
    beyond: str | None,
) -> ColumnFacts:
    feature, counted = features.get(name), features.get(_AS_TEXT + name)
    if feature is None:
        return ColumnFacts(name, "unknown", rows, missing=rows)
    kind = feature.WhichOneof("stats")
    common = getattr(feature, kind).common_stats
    texts = feature if kind == "string_stats" else counted
    numbers = feature.num_stats if kind == "num_stats" else None
    return ColumnFacts(
        name=name,
        type="string" if numbers is None else "int" if counted is not None else "float",
        rows=rows,
        missing=rows - common.num_non_missing,
        several=common.max_num_values > 1,
        numbers=None if numbers is None else _numbers(numbers),
        texts=None if texts is None else _texts(texts.string_stats, beyond),
    )


def _numbers(found: statistics_pb2.NumericStatistics) -> Numbers:
    (quantiles,) = (h for h in found.histograms if h.type == h.QUANTILES)
    edges = [(0.0, quantiles.buckets[0].low_value)]
    for bucket in quantiles.buckets:
        edges.append((edges[-1][0] + bucket.sample_count, bucket.high_value))
    counts, values = (np.asarray(side) for side in zip(*edges, strict=True))
    percentiles = np.interp(np.linspace(0.0, counts[-1], 101), counts, values)
    return Numbers(
        minimum=found.min,
        maximum=found.max,
        mean=found.mean,
        std=found.std_dev,
        zeros=found.num_zeros,
        percentiles=tuple(percentiles.tolist()),
    )


def _texts(found: statistics_pb2.StringStatistics, beyond: str | None) -> Texts:
    top = [(b.label, round(b.sample_count)) for b in found.rank_histogram.buckets]
    return Texts(found.unique, tuple(top), found.avg_length, beyond)
