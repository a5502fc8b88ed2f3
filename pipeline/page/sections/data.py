"""The raw data: rows, columns, schema anomalies.

From the artifacts of StatisticsGen and ExampleValidator (TFDV); the data are not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from components.normalization_validator.report import RawColumn, raw_distribution
from pipeline.graph.node_names import NodeName
from pipeline.page.distributions import raw_chart
from pipeline.page.drift import Quantiles, distance, quantiles_of
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Column,
    Items,
    Row,
    Section,
    Table,
    Text,
    Tile,
    Tiles,
)
from pipeline.page.inputs import RunInputs
from pipeline.page.shown_numbers import percent, short
from pipeline.report.records import find_output
from pipeline.report.split_statistics import (
    TRAIN_SPLIT,
    SplitStatistics,
    common_statistics,
    missing_rows,
    nan_values,
    read_statistics,
)

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import FeatureNameStatistics

SHOWN_ANOMALIES = 50

_MOST_VALUES = 1000
"""Values of a column of texts that TFDV lists."""

_LONGEST = 40
"""Characters of a value in the table."""

_NONE = Cell("")

_DIFFERENCE = (
    "texts: largest difference of the share of a value; numbers: mean difference of the share of "
    "values up to x, over the range of the deciles"
)


def section_of(run: RunInputs) -> Section:
    """Return the section."""
    folder = run.artifact(NodeName.STATISTICS_GEN, "statistics")
    splits = read_statistics(folder) if folder else {}
    blocks: list[Block] = []
    if splits:
        blocks += [_tiles(splits), *_anomalies(run), _columns(splits, _evaluated(run, splits))]
    else:
        gone = find_output(run.nodes, NodeName.STATISTICS_GEN, "statistics") is not None
        text = "The statistics of this run were deleted or are empty."
        if not gone:
            text = "StatisticsGen has not finished in this run: nothing is known of the data."
        blocks += [Text(text, "quiet"), *_anomalies(run)]
    return Section("data", "Data", blocks)


def _tiles(splits: Mapping[str, SplitStatistics]) -> Tiles:
    rows = sum(each.rows for each in splits.values())
    tiles = [
        Tile(f"rows in {each.split}", f"{each.rows:,}", f"{each.rows / rows:.1%} of all")
        if rows
        else Tile(f"rows in {each.split}", "0")
        for each in splits.values()
    ]
    names = {name for each in splits.values() for name in each.columns}
    return Tiles([*tiles, Tile("raw columns", f"{len(names):,}")])


def _evaluated(run: RunInputs, splits: Mapping[str, SplitStatistics]) -> str | None:
    """Return the split that train is compared with: the evaluated one, or else any other."""
    judged = run.summary.get("judged_split")
    if judged in splits and judged != TRAIN_SPLIT:
        return str(judged)
    return next((name for name in splits if name != TRAIN_SPLIT), None)


def _columns(splits: Mapping[str, SplitStatistics], evaluated: str | None) -> Block:
    """Return the table of raw columns: statistics of train, and the difference to a split."""
    first = next(iter(splits.values()))
    columns = [
        Column("column"),
        Column("type"),
        Column("missing", is_number=True, help="share of the rows without a value, or with NaN"),
        Column("distinct", is_number=True, help="number of different values; texts only"),
        Column("mean", is_number=True),
        Column("std", is_number=True),
        Column("min", is_number=True),
        Column("median", is_number=True),
        Column("max", is_number=True),
        Column("most frequent", help="most frequent value; texts only"),
        Column("its share", is_number=True, help="share of the values that are this one"),
    ]
    if evaluated is not None:
        columns.append(Column(f"{evaluated} differs", is_number=True, help=_DIFFERENCE))
    names = dict.fromkeys(name for each in splits.values() for name in each.columns)
    rows = []
    for name in names:
        column = first.columns.get(name)
        cells = [Cell(name), *_cells(column, first.rows)]
        if evaluated is not None:
            cells.append(_difference(column, splits[evaluated].columns.get(name)))
        rows.append(Row(cells, _details(name, splits)))
    return Table(f"Raw columns: statistics of {first.split}", columns, rows, filter="columns")


def _cells(column: FeatureNameStatistics | None, rows: int) -> list[Cell]:
    if column is None:
        return [Cell("not in train", state="warning"), *[_NONE] * 9]
    missing = missing_rows(column, rows) / rows if rows else None
    share = _NONE if missing is None else Cell(percent(missing), missing)
    numbers = [_number(name, column) for name in ("mean", "std_dev", "min", "median", "max")]
    if not column.HasField("string_stats"):
        return [Cell(_type(column)), share, _NONE, *numbers, _NONE, _NONE]
    texts = column.string_stats
    unique = Cell(f"{texts.unique:,}", texts.unique)
    top, top_share = _most_frequent(column)
    return [Cell(_type(column)), share, unique, *numbers, top, top_share]


def _type(column: FeatureNameStatistics) -> str:
    kind = column.Type.Name(column.type)
    names = {"INT": "integer", "FLOAT": "number", "STRING": "text", "BYTES": "bytes"}
    common = common_statistics(column)
    several = " (several)" if common is not None and common.max_num_values > 1 else ""
    return f"{names.get(kind, kind.lower())}{several}"


def _has_numbers(column: FeatureNameStatistics) -> bool:
    return column.HasField("num_stats") and column.num_stats.common_stats.tot_num_values > 0


def _number(name: str, column: FeatureNameStatistics) -> Cell:
    if not _has_numbers(column):
        return _NONE
    value = getattr(column.num_stats, name)
    if math.isnan(value):
        return Cell("undefined", state="quiet")
    return Cell(short(value), value if math.isfinite(value) else None)


def _most_frequent(column: FeatureNameStatistics) -> tuple[Cell, Cell]:
    texts = column.string_stats
    total = texts.common_stats.tot_num_values
    if not texts.top_values or not total:
        return _NONE, _NONE
    top = texts.top_values[0]
    share = top.frequency / total
    shown = top.value if len(top.value) <= _LONGEST else f"{top.value[:_LONGEST]}…"
    return Cell(shown or "(empty text)", note=top.value), Cell(percent(share), share)


def _difference(before: FeatureNameStatistics | None, after: FeatureNameStatistics | None) -> Cell:
    if before is None or after is None:
        return Cell("not in both", state="warning")
    value = distance(before, after)
    return _NONE if value is None else Cell(percent(value), value)


def _details(name: str, splits: Mapping[str, SplitStatistics]) -> list[Block]:
    """Return the values of a column in each split, and its statistics."""
    found = {split: each.columns[name] for split, each in splits.items() if name in each.columns}
    blocks: list[Block] = []
    distributions = _distributions(name, found)
    if distributions:
        title = f"{name}: share of the rows with a value"
        blocks.append(raw_chart(distributions, title, _quantiles(found)))
    else:
        blocks.append(Text("No row has a value.", "quiet"))
    blocks.append(_statistics({split: (each, splits[split].rows) for split, each in found.items()}))
    return [Beside(blocks)]


def _distributions(name: str, columns: Mapping[str, FeatureNameStatistics]) -> list[RawColumn]:
    found = (
        raw_distribution(column, name, split, most=_MOST_VALUES)
        for split, column in columns.items()
    )
    return [each for each in found if each is not None]


def _quantiles(columns: Mapping[str, FeatureNameStatistics]) -> dict[str, Quantiles]:
    found = {split: quantiles_of(column) for split, column in columns.items()}
    return {split: each for split, each in found.items() if each is not None}


def _statistics(columns: Mapping[str, tuple[FeatureNameStatistics, int]]) -> Table:
    """Return a table with a row per statistic and a column per data set.

    Args:
        columns: Data set -> statistics of the column, and number of rows.
    """
    lines: dict[str, list[Cell]] = {}

    def add(name: str, cells: Sequence[Cell]) -> None:
        if any(cell.text for cell in cells):
            lines[name] = list(cells)

    each = columns.values()
    missing = [(missing_rows(column, rows), rows) for column, rows in each]
    add("missing rows", [Cell(f"{n:,} ({percent(n / m)})" if m else "", n) for n, m in missing])
    nan = [nan_values(column) for column, _ in each]
    add("NaN", [Cell(f"{count:,}" if count else "", count) for count in nan])
    for title, name in (
        ("mean", "mean"),
        ("std", "std_dev"),
        ("min", "min"),
        ("median", "median"),
        ("max", "max"),
    ):
        add(title, [_number(name, column) for column, _ in each])
    zeros = [column.num_stats.num_zeros if _has_numbers(column) else None for column, _ in each]
    add("zeros", [_NONE if count is None else Cell(f"{count:,}", count) for count in zeros])
    texts = [column.string_stats if column.HasField("string_stats") else None for column, _ in each]
    add("distinct", [_NONE if t is None else Cell(f"{t.unique:,}", t.unique) for t in texts])
    add("average length", [_NONE if t is None else _length(t.avg_length) for t in texts])
    tops = [_most_frequent(column)[0] for column, _ in each]
    add("most frequent", tops)
    heads = [Column("statistic"), *(Column(name, is_number=True) for name in columns)]
    return Table(
        "Statistics of each split", heads, [Row([Cell(n), *cells]) for n, cells in lines.items()]
    )


def _length(value: float) -> Cell:
    return Cell(f"{short(value, 3)} characters", value)


def _anomalies(run: RunInputs) -> list[Block]:
    """Return what ExampleValidator found."""
    from tensorflow_metadata.proto.v0 import anomalies_pb2

    folder = run.artifact(NodeName.EXAMPLE_VALIDATOR, "anomalies")
    files = sorted(folder.glob("Split-*/SchemaDiff.pb")) if folder else []
    if not files:
        text = "Schema anomalies: not known; this run has no output of ExampleValidator."
        return [Text(text, "quiet")]
    sentences, splits = [], []
    for file in files:
        split = file.parent.name.removeprefix("Split-")
        splits.append(split)
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
    more = len(sentences) - SHOWN_ANOMALIES
    if more > 0:
        sentences = [*sentences[:SHOWN_ANOMALIES], f"{more:,} more"]
    count = len(sentences) + max(more, 0) - (more > 0)
    head = Text(f"Schema anomalies: {count:,}.", "warning")
    return [head, Items(sentences)]


def _plain(text: str) -> str:
    return " ".join(text.split())
