"""report.html: one page without any outside resource, for a person.

A row of its table is a raw column, and what it became: a histogram of both, and the numbers of each
split in a line. A column that became several outputs has a row for each; those of 0 and 1 alone
(indicators, one_hot) are folded into a list. The markup is in templates/report.html.jinja.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import jinja2
from markupsafe import Markup, escape

from components.normalization_validator.number_text import NONE, percent, short
from components.normalization_validator.plots import common_window, histogram_plot, raw_plot
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    Report,
    Violation,
)

_Output = tuple[ColumnStatistics, ...]
"""A transformed column in each split, train first."""

_Marked = dict[str, dict[tuple[str, str], str]]
"""Column -> (split, cell) -> sentences of the violated limits."""

_CELL_OF = {
    "mean": "mean",
    "std": "std",
    "min": "min",
    "max": "max",
    "moved": "moved",
    "mean_shift": "shift",
    "missing_shift": "imputed",
    "imputed_share": "imputed",
    "non_finite_share": "non_finite",
}

_HEAD = (
    ("Column", "text", "name of the transformed column, and how it was scaled or encoded"),
    ("Raw", "plot", "values as they came in: intervals of a number, or the most frequent texts"),
    ("Normalised", "plot", "same axis for every split; its height is that of its highest bar"),
    ("Split", "text", "split of the examples"),
    ("Mean", "", "over values that were not imputed"),
    ("Std", "", "over values that were not imputed"),
    ("Min", "", "over every finite value"),
    ("Max", "", "over every finite value"),
    ("Moved", "", "largest difference to train of the share of values in one interval"),
    ("Shift", "", "(mean - train mean) / train std"),
    ("Imputed", "", "share of values that replace a missing one"),
    ("NaN", "", "share of NaN and infinite values"),
)


_NUMBERS = ("mean", "std", "min", "max", "moved", "shift", "imputed", "non_finite")


class _Line(NamedTuple):
    """A text, and the sentences of the limits that it violates."""

    text: str
    message: str


class _Cell(NamedTuple):
    """The number of each split in a line; rows sort by the largest of them."""

    largest: str
    lines: list[_Line]


class _Row(NamedTuple):
    """A row of the table."""

    name: str
    kind: str
    tag: str
    is_violated: bool
    folded: list[_Line]
    raw: list[Markup]
    plots: list[Markup]
    splits: list[str]
    numbers: list[_Cell]


def render(report: Report) -> str:
    """Return the page's text; the same report gives the same text."""
    train = report.split(report.limits.train_split)
    verdict = "within limits"
    if not report.blessed:
        count = len(report.violations)
        verdict = f"{count:,} limit{'s' if count != 1 else ''} violated"
    sources = [report.sources.get(column.name, column.name) for column in train.columns]
    tiles = [("Columns", f"{len(set(sources)):,}"), ("Outputs", f"{len(sources):,}")]
    tiles += [(f"Rows in {split.split}", f"{split.rows:,}") for split in report.splits]
    tiles += [("Violated limits", f"{len(report.violations):,}")]
    return _template().render(
        blessed=report.blessed,
        verdict=verdict,
        tiles=tiles,
        messages=[violation.message for violation in report.violations],
        head=_HEAD,
        rows=list(_rows(report, sources)),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("components.normalization_validator"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html.jinja")


def _breakable(name: str) -> Markup:
    """Return a name that may continue in the next line behind an underscore."""
    return escape(name).replace("_", Markup("_<wbr/>"))


def _rows(report: Report, sources: Sequence[str]) -> Iterator[_Row]:
    """Yield the rows of the table, the outputs of a raw column one after the other."""
    outputs = list(zip(*(split.columns for split in report.splits), strict=True))
    first: dict[str, int] = {}
    for place, source in enumerate(sources):
        first.setdefault(source, place)
    order = sorted(range(len(sources)), key=lambda place: first[sources[place]])
    raw = {(each.name, each.split): each for each in report.raw}
    marked = _by_cell(report.violations)
    for source, places in groupby(order, key=lambda place: sources[place]):
        found = [outputs[place] for place in places]
        folded, shown = [], []
        for output in found:
            (folded if len(found) > 1 and _is_zero_one(output) else shown).append(output)
        lines = [raw.get((source, column.split)) for column in found[0]]
        for output in shown or [None]:
            yield _row(source, output, folded, lines, marked)
            folded, lines = [], [None] * len(lines)  # in the first row of the column alone


def _is_zero_one(output: _Output) -> bool:
    """Whether every value in every split is 0 or 1."""
    return all(_holds_zero_one(column) for column in output)


def _holds_zero_one(column: ColumnStatistics) -> bool:
    if column.is_id or column.non_finite or {column.min, column.max} - {0.0, 1.0, None}:
        return False
    histogram = column.histogram
    if histogram is None:
        return column.count == 0
    counts = [a + b for a, b in zip(histogram.observed, histogram.imputed, strict=True)]
    at = {int(value // histogram.width) - histogram.first_bin for value in (0.0, 1.0)}
    return sum(counts[place] for place in at if 0 <= place < len(counts)) == sum(counts)


def _by_cell(violations: Sequence[Violation]) -> _Marked:
    marked: _Marked = {}
    for v in violations:
        cells = marked.setdefault(v.column, {})
        key = (v.split, _CELL_OF[v.statistic])
        cells[key] = f"{cells[key]}\n{v.message}" if key in cells else v.message
    return marked


def _row(
    source: str,
    output: _Output | None,
    folded: Sequence[_Output],
    raw: Sequence[RawColumn | None],
    marked: _Marked,
) -> _Row:
    """Return a row of the table.

    Args:
        source: The raw column.
        output: What the row is about; None: of all outputs of 0 and 1.
        folded: Outputs that are listed below the name.
        raw: The raw column in each split, where that is known and shown here.
        marked: Sentences of each violated limit, by column, then by split and cell.
    """
    columns = output or folded[0]
    names = {column.name for column in (columns[0], *(each[0] for each in folded))}
    window = common_window([c.histogram for c in output or () if c.histogram is not None])
    train = columns[0]
    name, tag = source, ""
    if output is not None:
        name = train.name
        tag = "constant" if train.constant else "" if train.count else "no value"
    return _Row(
        name=name,
        kind=(train.kind or NONE) + (f" of {source}" if name != source else ""),
        tag=tag,
        is_violated=not names.isdisjoint(marked),
        folded=[_folded(each, marked) for each in folded],
        raw=[Markup(raw_plot(each) if each else "") for each in raw],
        plots=[Markup(histogram_plot(each, window)) for each in output or ()],
        splits=[column.split for column in columns],
        numbers=[_numbers(key, output or (), marked) for key in _NUMBERS],
    )


def _folded(output: _Output, marked: _Marked) -> _Line:
    """Return the share of 1 in each split of an output of 0 and 1."""
    shares = ", ".join(f"{c.split} {NONE if c.mean is None else percent(c.mean)}" for c in output)
    messages = marked.get(output[0].name, {}).values()
    return _Line(f"{output[0].name}: 1 in {shares}", "\n".join(messages))


def _numbers(key: str, output: _Output, marked: _Marked) -> _Cell:
    lines, values = [], []
    for column in output:
        value, text = _number(key, column)
        if value is not None and not math.isnan(value):
            values.append(float(value))
        lines.append(_Line(text, marked.get(column.name, {}).get((column.split, key), "")))
    return _Cell(repr(max(values)) if values else "", lines)


def _number(key: str, column: ColumnStatistics) -> tuple[float | None, str]:
    if key == "imputed":
        return column.imputed_share, percent(column.imputed_share)
    if key == "non_finite":
        return column.non_finite_share, percent(column.non_finite_share)
    if key in ("moved", "shift"):
        moved = column.shift
        value = None if moved is None else moved.moved if key == "moved" else moved.mean
        return value, short(value, 3)
    value = getattr(column, key)
    return value, short(value, 3)
