"""The raw data: rows, columns and schema anomalies, as StatisticsGen and ExampleValidator wrote.

The data are not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from components.normalization_validator.report import raw_distribution
from pipeline.graph.node_names import NodeName
from pipeline.page.charts import raw_chart
from pipeline.page.elements import (
    Beside,
    Block,
    Items,
    PageRun,
    Section,
    Text,
    Tile,
    Tiles,
    percent,
    short,
)
from pipeline.report.split_statistics import (
    SplitStatistics,
    common_statistics,
    missing_rows,
    read_statistics,
)
from pipeline.report.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import FeatureNameStatistics

_SHOWN_ANOMALIES = 50
_LONGEST = 40  # characters of a value in the table
_NONE = Cell("")
_STATISTICS = (
    Column("missing", True, "share of the rows without a value, or with NaN"),
    Column("mean", True),
    Column("std", True),
    Column("min", True),
    Column("median", True),
    Column("max", True),
    Column("zeros", True),
    Column("distinct", True, "number of different values; texts only"),
    Column("most frequent", help="most frequent value; texts only"),
    Column("its share", True, "share of the values that are this one"),
)


def section_of(run: PageRun) -> Section:
    """Return the section."""
    folder = run.result.folder(NodeName.STATISTICS_GEN, "statistics")
    splits = read_statistics(folder) if folder else {}
    if splits:
        return Section("data", "Data", [_tiles(splits), *_anomalies(run), _columns(splits)])
    text = "The statistics of this run were deleted or are empty."
    if run.result.uri(NodeName.STATISTICS_GEN, "statistics") is None:
        text = "StatisticsGen has not finished in this run: nothing is known of the data."
    return Section("data", "Data", [Text(text, "quiet"), *_anomalies(run)])


def _tiles(splits: Mapping[str, SplitStatistics]) -> Tiles:
    total = sum(each.rows for each in splits.values())
    tiles = [
        Tile(
            f"rows in {each.split}",
            f"{each.rows:,}",
            f"{each.rows / total:.1%} of all" if total else "",
        )
        for each in splits.values()
    ]
    names = {name for each in splits.values() for name in each.columns}
    return Tiles([*tiles, Tile("raw columns", f"{len(names):,}")])


def _columns(splits: Mapping[str, SplitStatistics]) -> Block:
    """Return the table of raw columns: statistics of train; the other splits are in the details."""
    first = next(iter(splits.values()))
    rows = []
    for name in dict.fromkeys(name for each in splits.values() for name in each.columns):
        column = first.columns.get(name)
        if column is None:
            cells = [Cell(f"not in {first.split}", state="warning"), *[_NONE] * len(_STATISTICS)]
        else:
            cells = [Cell(_type(column)), *_cells(column, first.rows)]
        rows.append(Row([Cell(name), *cells], _details(name, splits)))
    columns = [Column("column"), Column("type"), *_STATISTICS]
    return Table(f"Raw columns: statistics of {first.split}", columns, rows, filter="columns")


def _cells(column: FeatureNameStatistics, rows: int) -> list[Cell]:
    """Return a cell for each of `_STATISTICS`."""
    share = missing_rows(column, rows) / rows if rows else None
    missing = _NONE if share is None else Cell(percent(share), share)
    numbers = [_number(column, name) for name in ("mean", "std_dev", "min", "median", "max")]
    zeros = _NONE
    if _has_numbers(column):
        zeros = Cell(f"{column.num_stats.num_zeros:,}", column.num_stats.num_zeros)
    if not column.HasField("string_stats"):
        return [missing, *numbers, zeros, _NONE, _NONE, _NONE]
    texts = column.string_stats
    unique, total = Cell(f"{texts.unique:,}", texts.unique), texts.common_stats.tot_num_values
    if not texts.top_values or not total:
        return [missing, *numbers, zeros, unique, _NONE, _NONE]
    top, share = texts.top_values[0].value, texts.top_values[0].frequency / total
    shown = top if len(top) <= _LONGEST else f"{top[:_LONGEST]}…"
    frequent = [Cell(shown or "(empty text)", note=top), Cell(percent(share), share)]
    return [missing, *numbers, zeros, unique, *frequent]


def _type(column: FeatureNameStatistics) -> str:
    kind = column.Type.Name(column.type)
    names = {"INT": "integer", "FLOAT": "number", "STRING": "text", "BYTES": "bytes"}
    common = common_statistics(column)
    several = " (several)" if common is not None and common.max_num_values > 1 else ""
    return f"{names.get(kind, kind.lower())}{several}"


def _has_numbers(column: FeatureNameStatistics) -> bool:
    return column.HasField("num_stats") and column.num_stats.common_stats.tot_num_values > 0


def _number(column: FeatureNameStatistics, name: str) -> Cell:
    if not _has_numbers(column):
        return _NONE
    value = getattr(column.num_stats, name)
    if math.isnan(value):
        return Cell("undefined", state="quiet")
    return Cell(short(value), value if math.isfinite(value) else None)


def _details(name: str, splits: Mapping[str, SplitStatistics]) -> list[Block]:
    """Return the values of a column in each split, and its statistics."""
    known = {split: each for split, each in splits.items() if name in each.columns}
    values = [raw_distribution(each.columns[name], name, split) for split, each in known.items()]
    values = [each for each in values if each is not None]
    chart = raw_chart(values, f"{name}: share of the rows with a value")
    by_split = [_cells(each.columns[name], each.rows) for each in known.values()]
    rows = [
        Row([Cell(column.name), *cells])
        for column, cells in zip(_STATISTICS, zip(*by_split, strict=True), strict=True)
        if any(cell.text for cell in cells)
    ]
    columns = [Column("statistic"), *(Column(split, True) for split in known)]
    return [Beside([chart, Table("Statistics of each split", columns, rows)])]


def _anomalies(run: PageRun) -> list[Block]:
    """Return what ExampleValidator found."""
    from tensorflow_metadata.proto.v0 import anomalies_pb2

    folder = run.result.folder(NodeName.EXAMPLE_VALIDATOR, "anomalies")
    files = sorted(folder.glob("Split-*/SchemaDiff.pb")) if folder else []
    if not files:
        text = "Schema anomalies: not known; this run has no output of ExampleValidator."
        return [Text(text, "quiet")]
    sentences: list[str] = []
    splits = [file.parent.name.removeprefix("Split-") for file in files]
    for split, file in zip(splits, files, strict=True):
        found = anomalies_pb2.Anomalies.FromString(file.read_bytes())
        if found.data_missing:
            sentences.append(f"{split}: the split has no rows")
        if found.HasField("dataset_anomaly_info"):
            sentences.append(f"{split}: {_plain(found.dataset_anomaly_info.description)}")
        for name, info in sorted(found.anomaly_info.items()):
            column = ".".join(info.path.step) or name
            title = info.short_description or "anomaly"
            sentences.append(f"{split}, column {column}: {title}. {_plain(info.description)}")
    if not sentences:
        return [Text(f"Schema anomalies: none found in {' and '.join(splits)}.", "good")]
    more = len(sentences) - _SHOWN_ANOMALIES
    shown: Sequence[str] = sentences[:_SHOWN_ANOMALIES]
    head = Text(f"Schema anomalies: {len(sentences):,}.", "warning")
    return [head, Items([*shown, *([f"{more:,} more"] if more > 0 else [])])]


def _plain(text: str) -> str:
    return " ".join(text.split())
