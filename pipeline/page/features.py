"""What became of each column: its chain of steps with the fitted numbers, before and after.

From the report of NormalizationValidator (report.json: raw and transformed histograms, statistics,
violated limits) and from the transform graph (layout, chains, vocabularies). Nothing is computed
from data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

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
from pipeline.config.config import PipelineConfig
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
from pipeline.report.split_statistics import (
    SplitStatistics,
    common_statistics,
    missing_rows,
    read_statistics,
)
from pipeline.report.tables import Cell, Column, Row, State, Table
from shared_core import feature_layout as layouts
from shared_core.feature_layout import ASSETS, FeatureLayout

SHOWN_TERMS = 20
"""Terms of a vocabulary, the most frequent first."""

SHOWN_VIOLATIONS = 10
"""Violated limits that are listed above the table; the others are in a closed group."""

_NONE = Cell("")

_STATISTICS = {
    "mean": ("mean", "over values that were not imputed"),
    "std": ("std", "over values that were not imputed"),
    "min": ("min", "over every finite value"),
    "max": ("max", "over every finite value"),
    "imputed": ("imputed", "share of values that replace a missing one"),
    "non_finite": ("NaN", "share of NaN and infinite values"),
}


@dataclass(frozen=True)
class _Known:
    """What the transform graph and the statistics say of the columns of a report.

    Attributes:
        chains: Transformed column -> the chain of its source.
        columns: Transformed column -> its entry in the layout.
        terms: Vocabulary file -> its most frequent terms.
        raw: Raw column -> its distribution in each split.
        violations: Transformed column -> its violations.
    """

    chains: Mapping[str, Explained] = field(default_factory=dict)
    columns: Mapping[str, layouts.Column] = field(default_factory=dict)
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    raw: Mapping[str, Sequence[RawColumn]] = field(default_factory=dict)
    violations: Mapping[str, Sequence[Violation]] = field(default_factory=dict)


_Output = tuple[ColumnStatistics, ...]
"""A transformed column in each split, train first."""


class _Line(NamedTuple):
    """A row of a table of columns.

    Attributes:
        source: The raw or derived column.
        output: What the row is about; None: the folded outputs alone.
        folded: _Outputs of 0 and 1 of the source, in its first row.
    """

    source: str
    output: _Output | None
    folded: Sequence[_Output]


def section_of(run: PageRun) -> Section:
    """Return the section; without the validator's report, only what is no feature."""
    report, no_report = _read_report(run)
    notes: list[Block] = [Text(no_report, "quiet")] if no_report else []
    layout, explained = None, []
    graph = run.result.folder(NodeName.TRANSFORM, "transform_graph")
    if graph is None:
        text = "This run has no transform graph: Transform has not finished, or it was deleted."
        notes.append(Text(text, "quiet"))
    else:
        try:
            layout = FeatureLayout.from_transform_graph(str(graph))
            explained = explain_columns(run.result.nodes)
        except (ConfigError, OSError, ValueError) as error:  # damaged, or another version's
            notes.append(Text(f"The steps of the columns are not known: {error}", "quiet"))
    statistics = _statistics(run)
    known = _Known(
        chains={name: each for each in explained for name in each.chain.outputs},
        columns={column.name: column for column in layout.columns} if layout else {},
        terms=_terms(graph, layout),
    )
    blocks: list[Block] = []
    if report is not None:
        blocks += report_blocks(report, known)
    if layout is not None:
        blocks += _unused(run, layout, statistics)
    return Section("features", "Features", [*notes, *blocks])


def _statistics(run: PageRun) -> dict[str, SplitStatistics]:
    """Return the statistics of the raw columns; none if the section Data cannot read them."""
    folder = run.result.folder(NodeName.STATISTICS_GEN, "statistics")
    try:
        return read_statistics(folder) if folder else {}
    except ValueError:
        return {}


def _read_report(run: PageRun) -> tuple[Report | None, str]:
    """Return the validator's report, or None and a sentence that says why there is none."""
    folder = run.result.folder(NodeName.NORMALIZATION_VALIDATOR, "report") or _failed_report(run)
    if folder is None:
        if NodeName.NORMALIZATION_VALIDATOR in run.result.nodes:
            return None, "The report of NormalizationValidator was deleted."
        return None, "NormalizationValidator has not finished in this run: no histograms."
    try:
        return read_report(folder / REPORT_JSON), ""
    except ValueError as error:
        return None, f"{error}: no histograms."


def read_report(file: Path) -> Report:
    """Return the content of a report.json.

    Raises:
        ValueError: It cannot be read, or it is something else.
    """
    try:
        return Report.model_validate_json(file.read_bytes())
    except (OSError, pydantic.ValidationError) as error:
        raise ValueError(f"{file} cannot be read ({type(error).__name__})") from None


def _failed_report(run: PageRun) -> Path | None:
    """Return the folder of the report with which the node failed, beside TFX's deleted one."""
    failed = run.summary["run"].get("error") or {}
    if failed.get("node") != NodeName.NORMALIZATION_VALIDATOR:
        return None
    return next((path.parent for path in _named_files(failed["message"]) if path.is_file()), None)


def _named_files(message: str) -> Iterator[Path]:
    """Yield the report.json that the node's message names."""
    for line in message.splitlines():
        if line.startswith("Report: "):
            yield Path(line.removeprefix("Report: "))


def report_blocks(report: Report, known: _Known | None = None) -> list[Block]:
    """Return what a report of NormalizationValidator holds: tiles, violated limits, a table.

    Args:
        report: The content of report.json.
        known: What the transform graph says beside it.
    """
    known = known or _Known()
    violations: dict[str, list[Violation]] = {}
    for violation in report.violations:
        violations.setdefault(violation.column, []).append(violation)
    raw: dict[str, list[RawColumn]] = {}
    for column in report.raw:
        raw.setdefault(column.name, []).append(column)
    known = replace(known, raw=raw, violations=violations)
    sources = _sources_of(report)
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
        blocks.append(Items(messages[:SHOWN_VIOLATIONS], "bad"))
        if more := messages[SHOWN_VIOLATIONS:]:
            blocks.append(Group(f"{len(more):,} more violated limits", [Items(more)]))
    else:
        blocks.append(Text("Every column is within its limits.", "good"))
    blocks.append(_table(report, known))
    return blocks


def _sources_of(report: Report) -> list[str]:
    """Return the raw or derived column of each transformed column."""
    train = report.split(TRAIN_SPLIT)
    return [report.sources.get(column.name, column.name) for column in train.columns]


def _lines_of(report: Report) -> Iterator[_Line]:
    """Yield the rows of a table, the outputs of a raw column one after the other.

    A source that became several outputs has a row for each; those of 0 and 1 alone (indicators,
    one_hot) are folded into the first one, or into a row of their source.
    """
    sources = _sources_of(report)
    outputs = list(zip(*(split.columns for split in report.splits), strict=True))
    first: dict[str, int] = {}
    for place, source in enumerate(sources):
        first.setdefault(source, place)
    order = sorted(range(len(sources)), key=lambda place: first[sources[place]])
    for source, places in groupby(order, key=lambda place: sources[place]):
        found = [outputs[place] for place in places]
        folded, shown = [], []
        for output in found:
            is_folded = len(found) > 1 and all(map(_holds_zero_one, output))
            (folded if is_folded else shown).append(output)
        for number, output in enumerate(shown or [None]):
            yield _Line(source, output, [] if number else folded)


def _holds_zero_one(column: ColumnStatistics) -> bool:
    """Whether every value is 0 or 1."""
    if column.is_id or column.non_finite or {column.min, column.max} - {0.0, 1.0, None}:
        return False
    histogram = column.histogram
    if histogram is None:
        return column.count == 0
    counts = [a + b for a, b in zip(histogram.observed, histogram.imputed, strict=True)]
    at = {int(value // histogram.width) - histogram.first_bin for value in (0.0, 1.0)}
    return sum(counts[place] for place in at if 0 <= place < len(counts)) == sum(counts)


def _table(report: Report, known: _Known) -> Table:
    train = TRAIN_SPLIT
    columns = [
        Column("transformed column"),
        Column("from", help="the raw or derived column, where it has another name"),
        Column("step", help="how it was scaled or encoded"),
    ]
    for title, text in _STATISTICS.values():
        columns.append(Column(title, is_number=True, help=f"{train}: {text}"))
    if known.violations:
        columns.append(Column("limits"))
    rows = [_row(line, known) for line in _lines_of(report)]
    caption = f"Transformed columns: statistics of {train}"
    return Table(caption, columns, rows, filter="columns")


def _row(line: _Line, known: _Known) -> Row:
    source, output, folded = line
    train = (output or folded[0])[0]
    name = train.name if output else source
    step = train.kind or ""
    if output is None:
        step += f": {len(folded):,} columns of 0 and 1"
    elif folded:
        step += f" and {len(folded):,} of 0 and 1"
    if output and (train.constant or not train.count):
        step += ", constant" if train.constant else ", no value"
    names = [each[0].name for each in (*((output,) if output else ()), *folded)]
    broken = [violation for each in names for violation in known.violations.get(each, ())]
    cells = [Cell(name), Cell(source if source != name else ""), Cell(step)]
    cells += [_cell(key, train) if output else _NONE for key in _STATISTICS]
    if known.violations:
        where = dict.fromkeys(f"{each.statistic} in {each.split}" for each in broken)
        text = f"violated: {', '.join(where)}" if broken else ""
        note = "\n".join(each.message for each in broken)
        cells.append(Cell(text, state="bad" if broken else "", note=note))
    return Row(cells, _details(source, output, folded, known))


def _cell(key: str, column: ColumnStatistics) -> Cell:
    shares = {"imputed": column.imputed_share, "non_finite": column.non_finite_share}
    value = shares[key] if key in shares else getattr(column, key)
    if value is None:
        return _NONE
    text = percent(value) if key in shares else short(value)
    return Cell(text, value if math.isfinite(value) else None)


def _details(
    source: str, output: _Output | None, folded: Sequence[_Output], known: _Known
) -> list[Block]:
    """Return the steps, the values before and after, and the statistics of each split."""
    blocks: list[Block] = []
    first = (output or folded[0])[0]
    if explained := known.chains.get(first.name):
        blocks.append(Items(_steps(explained)))
    if text := _vocabulary(known.columns.get(first.name), known):
        blocks.append(Text(text))
    charts: list[Block] = []
    if source in known.raw:
        title = f"Raw: {source}, share of the rows with a value"
        charts.append(raw_chart(known.raw[source], title))
    if output:
        charts += [transformed_chart(each, output) for each in output]
        charts.append(_split_table(output))
    if charts:
        blocks.append(Beside(charts))
    if folded:
        blocks.append(_folded_table(folded))
    return blocks


def _steps(explained: Explained) -> list[str]:
    """Return a sentence for each step, as `features explain` prints it."""
    missing = []
    if explained.missing is not None:
        missing = [f"missing in train: {percent(explained.missing)}"]
    return [*missing, *map(step_text, explained.chain.steps)]


def _vocabulary(column: layouts.Column | None, known: _Known) -> str:
    if column is None or column.vocabulary_size is None:
        return ""
    text = f"Ids from 0 to {column.vocabulary_size - 1:,}"
    terms = known.terms.get(column.vocabulary or "")
    if terms is None:
        return f"{text}."
    known_terms = column.vocabulary_size - column.extra_ids
    extra = f"{column.extra_ids:,} more for unknown and missing values"
    listed = ", ".join(map(repr, terms))
    return f"{text}: {known_terms:,} values of the vocabulary and {extra}. In order: {listed}" + (
        ", ..." if known_terms > len(terms) else "."
    )


def _split_table(output: _Output) -> Table:
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


def _folded_table(folded: Sequence[_Output]) -> Table:
    """Return the outputs of 0 and 1: the share of 1 in each split."""
    rows = []
    for output in folded:
        cells = [Cell("" if c.mean is None else percent(c.mean), c.mean) for c in output]
        rows.append(Row([Cell(output[0].name), *cells]))
    columns = [Column(f"1 in {each.split}", is_number=True) for each in folded[0]]
    filtered = "columns" if len(rows) > 20 else ""
    columns = [Column("column of 0 and 1"), *columns]
    return Table("Columns of 0 and 1: share of 1", columns, rows, filter=filtered)


def _terms(graph: Path | None, layout: FeatureLayout | None) -> dict[str, list[str]]:
    """Return vocabulary file -> its first terms, which are the most frequent ones."""
    found: dict[str, list[str]] = {}
    for column in layout.columns if layout else ():
        if graph is None or column.vocabulary is None or column.vocabulary in found:
            continue
        file = graph / ASSETS / column.vocabulary
        if file.is_file():
            with file.open("rb") as lines:
                found[column.vocabulary] = [
                    line.rstrip(b"\n").decode(errors="replace")
                    for line, _ in zip(lines, range(SHOWN_TERMS), strict=False)
                ]
    return found


def _unused(
    run: PageRun, layout: FeatureLayout, statistics: Mapping[str, SplitStatistics]
) -> list[Block]:
    """Return which raw columns are no feature, and why."""
    crossed = {column for cross in run.result.config.features.crosses for column in cross.columns}
    used = {column.source for column in layout.columns} | crossed
    unused = sorted({name for split in statistics.values() for name in split.columns} - used)
    if not unused:
        return []
    roles = _roles(run.result.config)
    first = next(iter(statistics.values()))  # train, from which features are made
    derive = run.result.config.features.derive
    rows = []
    for name in unused:
        reason = roles.get(name) or _why_unused(name, first)
        if derive is not None and name not in roles:
            reason += f"; {derive} may read it"
        rows.append(Row([Cell(name), Cell(reason)]))
    columns = [Column("raw column"), Column("reason", help=f"numbers are of {first.split}")]
    noun = "column" if len(unused) == 1 else "columns"
    caption = f"Raw {noun} that are no model input, by the statistics of {first.split}"
    filtered = "columns" if len(rows) > 20 else ""
    table = Table(caption, columns, rows, filter=filtered)
    return [Group(f"Left out: {len(unused):,} raw {noun}", [table])]


def _why_unused(name: str, split: SplitStatistics) -> str:
    """Return what the values of a column are."""
    if name not in split.columns:
        return f"not in {split.split}"
    column, rows = split.columns[name], split.rows
    common, missing = common_statistics(column), missing_rows(column, rows)
    if common is None or missing == rows:
        return "no row has a value"
    values = "values"
    if column.HasField("string_stats"):
        values = f"{column.string_stats.unique:,} different texts"
    elif column.HasField("num_stats"):
        whole, form = ("whole ", ".0f") if column.type == column.INT else ("", ".6g")
        low, high = column.num_stats.min, column.num_stats.max
        values = f"{whole}numbers from {low:{form}} to {high:{form}}"
    values += f"; {missing:,} of {rows:,} missing" if missing else ""
    return f"no feature of the configuration uses it: {values}"


def _roles(config: PipelineConfig) -> dict[str, str]:
    """Return raw column -> what the configuration uses it for."""
    spec = config.features
    roles: dict[str, str] = {}
    if spec.label is not None:
        roles |= dict.fromkeys(spec.label.sources, f"the label {spec.label.column} is made of it")
        roles[spec.label.column] = "the label"
    if spec.weight is not None:
        roles[spec.weight] = "the weight of the row"
    roles |= dict.fromkeys(spec.passthrough, "passed through to those who read the rows")
    if config.data.split.column is not None:
        roles.setdefault(config.data.split.column, f"splits rows by {config.data.split.by}")
    return roles
