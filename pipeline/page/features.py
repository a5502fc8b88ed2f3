"""What became of each column: its chain of steps with the fitted numbers, before and after.

From the report of NormalizationValidator (report.json: raw and transformed histograms, statistics,
violated limits) and from the transform graph (layout, chains). Nothing is computed from data.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pydantic

from components.normalization_validator.limits import TRAIN_SPLIT
from components.normalization_validator.report import (
    REPORT_JSON,
    ColumnStatistics,
    RawColumn,
    Report,
    Violation,
)
from pipeline.common.errors import ConfigError
from pipeline.features.features_explain import Explained, explain_columns, step_text
from pipeline.graph.node_names import NodeName
from pipeline.page.charts import raw_chart, transformed_chart
from pipeline.page.elements import (
    Beside,
    Block,
    Group,
    Items,
    PageRun,
    Section,
    Text,
    Tile,
    Tiles,
    percent,
    short,
)
from pipeline.report.split_statistics import read_statistics
from pipeline.report.tables import Cell, Column, Row, State, Table
from shared_core.feature_layout import FeatureLayout

_SHOWN_VIOLATIONS = 10
"""Violated limits that are listed above the table; the others are in a closed group."""


_STATISTICS = {
    "mean": ("mean", "over values that were not imputed"),
    "std": ("std", "over values that were not imputed"),
    "min": ("min", "over every finite value"),
    "max": ("max", "over every finite value"),
    "imputed": ("imputed", "share of values that replace a missing one"),
    "non_finite": ("NaN", "share of NaN and infinite values"),
}


def section_of(run: PageRun) -> Section:
    """Return the section; without the validator's report, only the columns that are no feature."""
    report, no_report = _read_report(run)
    blocks: list[Block] = [Text(no_report, "quiet")] if no_report else []
    explained, unused = list[Explained](), list[Block]()
    graph = run.result.folder(NodeName.TRANSFORM, "transform_graph")
    if graph is None:
        text = "This run has no transform graph: Transform has not finished, or it was deleted."
        blocks.append(Text(text, "quiet"))
    else:
        try:
            if layout := FeatureLayout.from_transform_graph(str(graph)):
                unused = _unused(run, layout)
            explained = explain_columns(run.result.nodes)
        except (ConfigError, OSError, ValueError) as error:  # damaged, or another version's
            blocks.append(Text(f"The steps of the columns are not known: {error}", "quiet"))
    if report is not None:
        blocks += report_blocks(report, {n: each for each in explained for n in each.chain.outputs})
    return Section("features", "Features", [*blocks, *unused])


def _unused(run: PageRun, layout: FeatureLayout) -> list[Block]:
    """Return the names of the raw columns that are no feature."""
    folder = run.result.folder(NodeName.STATISTICS_GEN, "statistics")
    splits = read_statistics(folder) if folder else {}
    crossed = {column for cross in run.result.config.features.crosses for column in cross.columns}
    features = (*layout.columns, *layout.images, *layout.tokens)
    used = {feature.source for feature in features} | crossed
    names = sorted({name for split in splits.values() for name in split.columns} - used)
    if not names:
        return []
    return [Group(f"Raw columns that are no model input: {len(names):,}", [Text(", ".join(names))])]


def _read_report(run: PageRun) -> tuple[Report | None, str]:
    """Return the validator's report, or None and a sentence that says why there is none."""
    folder = run.result.folder(NodeName.NORMALIZATION_VALIDATOR, "report") or _failed_report(run)
    if folder is None:
        if NodeName.NORMALIZATION_VALIDATOR in run.result.nodes:
            return None, "The report of NormalizationValidator was deleted."
        return None, "NormalizationValidator has not finished in this run: no histograms."
    file = folder / REPORT_JSON
    try:
        return Report.model_validate_json(file.read_bytes()), ""
    except (OSError, pydantic.ValidationError) as error:
        return None, f"{file} cannot be read ({type(error).__name__}): no histograms."


def _failed_report(run: PageRun) -> Path | None:
    """Return the folder of the report with which the node failed, beside TFX's deleted one."""
    failed = run.summary["run"].get("error") or {}
    if failed.get("node") != NodeName.NORMALIZATION_VALIDATOR:
        return None
    found = re.findall(r"^Report: (.*)$", failed["message"], re.MULTILINE)
    return next((path.parent for path in map(Path, found) if path.is_file()), None)


def report_blocks(report: Report, chains: Mapping[str, Explained]) -> list[Block]:
    """Return what a report of NormalizationValidator holds: tiles, violated limits, a table.

    `chains`: transformed column -> the chain of its source, where it is known.
    """
    train = report.split(TRAIN_SPLIT)
    sources = [report.sources.get(column.name, column.name) for column in train.columns]
    count = len(report.violations)
    limits: tuple[str, State] = (f"{count:,}", "bad" if count else "good")
    tiles = [
        Tile("columns", f"{len(set(sources)):,}", "raw, derived or crossed"),
        Tile("model inputs", f"{len(sources):,}", "transformed columns"),
        Tile("violated limits", limits[0], "of the section normalization", limits[1]),
    ]
    blocks: list[Block] = [Tiles(tiles)]
    if count:
        messages = [violation.message for violation in report.violations]
        blocks.append(Items(messages[:_SHOWN_VIOLATIONS], "bad"))
        if more := messages[_SHOWN_VIOLATIONS:]:
            blocks.append(Group(f"{len(more):,} more violated limits", [Items(more)]))
    else:
        blocks.append(Text("Every column is within its limits.", "good"))
    return [*blocks, _table(report, sources, chains)]


def _table(report: Report, sources: Sequence[str], chains: Mapping[str, Explained]) -> Table:
    """Return a row for each transformed column, those of a raw column one after the other."""
    violations, raw = defaultdict[str, list[Violation]](list), defaultdict[str, list](list)
    for violation in report.violations:
        violations[violation.column].append(violation)
    for column in report.raw:
        raw[column.name].append(column)
    columns = [
        Column("transformed column"),
        Column("from", help="the raw or derived column, where it has another name"),
        Column("step", help="how it was scaled or encoded"),
    ]
    for title, text in _STATISTICS.values():
        columns.append(Column(title, is_number=True, help=f"{TRAIN_SPLIT}: {text}"))
    if violations:
        columns.append(Column("limits"))
    outputs = list(zip(*(split.columns for split in report.splits), strict=True))
    first: dict[str, int] = {}
    for place, source in enumerate(sources):
        first.setdefault(source, place)
    rows = []
    for place in sorted(range(len(sources)), key=lambda place: first[sources[place]]):
        output, source = outputs[place], sources[place]
        train = output[0]
        step = train.kind or ""
        if train.constant or not train.count:
            step += ", constant" if train.constant else ", no value"
        cells = [Cell(train.name), Cell(source if source != train.name else ""), Cell(step)]
        cells += [_cell(key, train) for key in _STATISTICS]
        if violations:
            broken = violations.get(train.name, ())
            where = dict.fromkeys(f"{each.statistic} in {each.split}" for each in broken)
            text = f"violated: {', '.join(where)}" if broken else ""
            note = "\n".join(each.message for each in broken)
            cells.append(Cell(text, state="bad" if broken else "", note=note))
        chain = chains.get(train.name) or chains.get(source)  # of a channel, that of the image
        rows.append(Row(cells, _details(source, raw[source], output, chain)))
    title = f"Transformed columns: statistics of {TRAIN_SPLIT}"
    return Table(title, columns, rows, filter="columns")


def _cell(key: str, column: ColumnStatistics) -> Cell:
    shares = {"imputed": column.imputed_share, "non_finite": column.non_finite_share}
    value = shares[key] if key in shares else getattr(column, key)
    if value is None:
        return Cell("")
    text = percent(value) if key in shares else short(value)
    return Cell(text, value if math.isfinite(value) else None)


def _details(
    source: str,
    raw: Sequence[RawColumn],
    output: Sequence[ColumnStatistics],
    explained: Explained | None,
) -> list[Block]:
    """Return the steps, the values before and after, and the statistics of each split."""
    blocks: list[Block] = []
    if explained is not None:
        steps = [*map(step_text, explained.chain.steps)]
        if explained.missing is not None:
            steps.insert(0, f"missing in {TRAIN_SPLIT}: {percent(explained.missing)}")
        blocks.append(Items(steps))
    charts: list[Block] = []
    if raw:
        charts.append(raw_chart(raw, f"Raw: {source}, share of the rows with a value"))
    charts += [transformed_chart(each, output) for each in output]
    return [*blocks, Beside([*charts, _split_table(output)])]


def _split_table(output: Sequence[ColumnStatistics]) -> Table:
    """Return the statistics of a column: a row each, a column per split."""
    rows = [Row([Cell("values"), *(Cell(f"{each.values:,}", each.values) for each in output)])]
    if any(each.absent for each in output):
        cells = [Cell(f"{each.absent:,}", each.absent) for each in output]
        rows.append(Row([Cell("absent"), *cells]))
    for key, (title, text) in _STATISTICS.items():
        cells = [_cell(key, each) for each in output]
        if any(cell.text for cell in cells):
            rows.append(Row([Cell(title, note=text), *cells]))
    columns = [Column("statistic"), *(Column(each.split, is_number=True) for each in output)]
    return Table("Statistics of each split", columns, rows)
