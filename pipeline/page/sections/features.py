"""What became of each column: its chain of steps with the fitted numbers, before and after.

From the report of NormalizationValidator (report.json: raw and transformed histograms, statistics,
violated limits) and from the transform graph (layout, chains, vocabularies). Nothing is computed
from data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pydantic

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
from pipeline.page.common_bars import common_window
from pipeline.page.distributions import by_split, raw_chart, transformed_chart
from pipeline.page.drift import Quantiles, quantiles_of
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Column,
    Group,
    Items,
    Row,
    Section,
    State,
    Table,
    Text,
    Tile,
    Tiles,
)
from pipeline.page.inputs import RunInputs
from pipeline.page.report_columns import Line, Output, lines_of, sources_of
from pipeline.page.shown_numbers import percent, short
from pipeline.report.split_statistics import (
    SplitStatistics,
    common_statistics,
    missing_rows,
    read_statistics,
)
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
_CELL_OF = {"imputed_share": "imputed", "non_finite_share": "non_finite"}
"""Statistic of a violation -> that of the table, where the names differ."""


@dataclass(frozen=True)
class _Known:
    """What the transform graph and the statistics say of the columns of a report.

    Attributes:
        chains: Transformed column -> the chain of its source.
        columns: Transformed column -> its entry in the layout.
        terms: Vocabulary file -> its most frequent terms.
        raw: Raw column -> its distribution in each split.
        quantiles: Raw column -> split -> its deciles.
        violations: Transformed column -> its violations.
    """

    chains: Mapping[str, Explained] = field(default_factory=dict)
    columns: Mapping[str, layouts.Column] = field(default_factory=dict)
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    raw: Mapping[str, Sequence[RawColumn]] = field(default_factory=dict)
    quantiles: Mapping[str, Mapping[str, Quantiles]] = field(default_factory=dict)
    violations: Mapping[str, Sequence[Violation]] = field(default_factory=dict)


def section_of(run: RunInputs) -> Section:
    """Return the section; without the validator's report, from the transform graph alone."""
    report, no_report = _read_report(run)
    notes: list[Block] = [Text(no_report, "quiet")] if no_report else []
    layout, explained = None, []
    graph = run.artifact(NodeName.TRANSFORM, "transform_graph")
    if graph is None:
        text = "This run has no transform graph: Transform has not finished, or it was deleted."
        notes.append(Text(text, "quiet"))
    else:
        try:
            layout = FeatureLayout.from_transform_graph(str(graph))
            explained = explain_columns(run.nodes)
        except (ConfigError, OSError, ValueError) as error:  # damaged, or another version's
            notes.append(Text(f"The steps of the columns are not known: {error}", "quiet"))
    statistics = _statistics(run)
    known = _Known(
        chains={name: each for each in explained for name in each.chain.outputs},
        columns={column.name: column for column in layout.columns} if layout else {},
        terms=_terms(graph, layout),
        quantiles=_quantiles(statistics),
    )
    blocks: list[Block] = []
    if report is not None:
        blocks += report_blocks(report, known)
    elif layout is not None:
        blocks.append(_layout_table(layout, known))
    if layout is not None:
        blocks += _unused(run, layout, statistics)
    return Section("features", "Features", [*notes, *blocks])


def _statistics(run: RunInputs) -> dict[str, SplitStatistics]:
    """Return the statistics of the raw columns; none if the section Data cannot read them."""
    folder = run.artifact(NodeName.STATISTICS_GEN, "statistics")
    try:
        return read_statistics(folder) if folder else {}
    except ValueError:
        return {}


def _read_report(run: RunInputs) -> tuple[Report | None, str]:
    """Return the validator's report, or None and a sentence that says why there is none."""
    folder = run.artifact(NodeName.NORMALIZATION_VALIDATOR, "report") or _failed_report(run)
    if folder is None:
        if NodeName.NORMALIZATION_VALIDATOR in run.nodes:
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


def _failed_report(run: RunInputs) -> Path | None:
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
    known = replace(known, raw=by_split(report.raw), violations=violations)
    sources = sources_of(report)
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


def _table(report: Report, known: _Known) -> Table:
    train = report.limits.train_split
    columns = [
        Column("transformed column"),
        Column("from", help="the raw or derived column, where it has another name"),
        Column("step", help="how it was scaled or encoded"),
    ]
    for title, text in _STATISTICS.values():
        columns.append(Column(title, is_number=True, help=f"{train}: {text}"))
    if known.violations:
        columns.append(Column("limits"))
    rows = [_row(line, known) for line in lines_of(report)]
    caption = f"Transformed columns: statistics of {train}"
    return Table(caption, columns, rows, filter="columns")


def _row(line: Line, known: _Known) -> Row:
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
    of_output = [each for each in broken if each.column == name]
    for key in _STATISTICS:
        cells.append(_cell(key, train, of_output) if output else _NONE)
    if known.violations:
        where = dict.fromkeys(f"{each.statistic} in {each.split}" for each in broken)
        text = f"violated: {', '.join(where)}" if broken else ""
        note = "\n".join(each.message for each in broken)
        cells.append(Cell(text, state="bad" if broken else "", note=note))
    return Row(cells, _details(source, output, folded, known))


def _cell(key: str, column: ColumnStatistics, broken: Sequence[Violation]) -> Cell:
    value = _number(key, column)
    if value is None:
        return _NONE
    text = percent(value) if key in ("imputed", "non_finite") else short(value)
    messages = [
        each.message
        for each in broken
        if each.split == column.split and _CELL_OF.get(each.statistic, each.statistic) == key
    ]
    if not math.isfinite(value):
        return Cell(text, state="bad" if messages else "", note="\n".join(messages))
    return Cell(text, value, "bad" if messages else "", "\n".join(messages))


def _number(key: str, column: ColumnStatistics) -> float | None:
    if key == "imputed":
        return column.imputed_share
    if key == "non_finite":
        return column.non_finite_share
    return getattr(column, key)


def _details(
    source: str, output: Output | None, folded: Sequence[Output], known: _Known
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
        charts.append(raw_chart(known.raw[source], title, known.quantiles.get(source)))
    if output:
        window = common_window([each.histogram for each in output if each.histogram is not None])
        charts += [transformed_chart(each, window) for each in output]
        charts.append(_split_table(output, known.violations.get(first.name, ())))
    if charts:
        blocks.append(Beside(charts))
    if folded:
        blocks.append(_folded_table(folded, known))
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


def _split_table(output: Output, broken: Sequence[Violation]) -> Table:
    """Return the statistics of a column: a row each, a column per split."""
    columns = [
        Column("statistic"),
        *(Column(each.split, is_number=True) for each in output),
    ]
    rows = [
        Row([Cell("values"), *(Cell(f"{each.values:,}", each.values) for each in output)]),
    ]
    if any(each.absent for each in output):
        rows.append(
            Row([Cell("absent"), *(Cell(f"{each.absent:,}", each.absent) for each in output)])
        )
    for key, (title, text) in _STATISTICS.items():
        cells = [_cell(key, each, broken) for each in output]
        if any(cell.text for cell in cells):
            rows.append(Row([Cell(title, note=text), *cells]))
    return Table("Statistics of each split", columns, rows)


def _folded_table(folded: Sequence[Output], known: _Known) -> Table:
    """Return the outputs of 0 and 1: the share of 1 in each split."""
    columns = [
        Column("column of 0 and 1"),
        *(Column(f"1 in {each.split}", is_number=True) for each in folded[0]),
    ]
    rows = []
    for output in folded:
        broken = known.violations.get(output[0].name, ())
        cells = []
        for each in output:
            messages = "\n".join(v.message for v in broken if v.split == each.split)
            state: State = "bad" if messages else ""
            text = "" if each.mean is None else percent(each.mean)
            cells.append(Cell(text, each.mean, state, messages))
        rows.append(Row([Cell(output[0].name), *cells]))
    filtered = "columns" if len(rows) > 20 else ""
    return Table("Columns of 0 and 1: share of 1", columns, rows, filter=filtered)


def _layout_table(layout: FeatureLayout, known: _Known) -> Table:
    """Return the transformed columns without statistics."""
    columns = [Column("transformed column"), Column("from"), Column("group"), Column("step")]
    rows = []
    for column in layout.columns:
        explained = known.chains.get(column.name)
        details: list[Block] = [Items(_steps(explained))] if explained else []
        if text := _vocabulary(column, known):
            details.append(Text(text))
        source = column.source if column.source != column.name else ""
        cells = [Cell(column.name), Cell(source), Cell(column.group), Cell(column.kind)]
        rows.append(Row(cells, details))
    return Table("Transformed columns", columns, rows, filter="columns")


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


def _quantiles(statistics: Mapping[str, SplitStatistics]) -> dict[str, dict[str, Quantiles]]:
    found: dict[str, dict[str, Quantiles]] = {}
    for split in statistics.values():
        for name, column in split.columns.items():
            if (quantiles := quantiles_of(column)) is not None:
                found.setdefault(name, {})[split.split] = quantiles
    return found


def _unused(
    run: RunInputs, layout: FeatureLayout, statistics: Mapping[str, SplitStatistics]
) -> list[Block]:
    """Return which raw columns are no feature, and why."""
    crossed = {column for cross in run.config.features.crosses for column in cross.columns}
    used = {column.source for column in layout.columns} | crossed
    unused = sorted({name for split in statistics.values() for name in split.columns} - used)
    if not unused:
        return []
    roles = _roles(run.config)
    first = next(iter(statistics.values()))  # train, from which features are made
    derive = run.config.features.derive
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
