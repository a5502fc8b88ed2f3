"""report.html: one page without any outside resource, for a person.

A row of its table is a raw column, and what it became: a histogram of both, and the numbers of each
split in a line. A column that became several outputs has a row for each; those of 0 and 1 alone
(indicators, one_hot) are folded into a list. The markup is in templates/report.html.jinja.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jinja2
from markupsafe import Markup, escape

from components.normalization_validator.common_bars import common_window
from components.normalization_validator.number_text import NONE, percent, short
from components.normalization_validator.outputs import Output, lines_of, sources_of
from components.normalization_validator.plots import histogram_plot, raw_plot
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    Report,
    Violation,
)

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
    verdict = "within limits"
    if not report.blessed:
        count = len(report.violations)
        verdict = f"{count:,} limit{'s' if count != 1 else ''} violated"
    sources = sources_of(report)
    tiles = [("Columns", f"{len(set(sources)):,}"), ("Outputs", f"{len(sources):,}")]
    tiles += [(f"Rows in {split.split}", f"{split.rows:,}") for split in report.splits]
    tiles += [("Violated limits", f"{len(report.violations):,}")]
    return _template().render(
        blessed=report.blessed,
        verdict=verdict,
        tiles=tiles,
        messages=[violation.message for violation in report.violations],
        head=_HEAD,
        rows=list(_rows(report)),
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


def _rows(report: Report) -> Iterator[_Row]:
    """Yield the rows of the table."""
    raw = {(each.name, each.split): each for each in report.raw}
    marked = _by_cell(report.violations)
    splits = [split.split for split in report.splits]
    for line in lines_of(report):
        beside = [raw.get((line.source, each)) if line.is_first else None for each in splits]
        yield _row(line.source, line.output, line.folded, beside, marked)


def _by_cell(violations: Sequence[Violation]) -> _Marked:
    marked: _Marked = {}
    for v in violations:
        cells = marked.setdefault(v.column, {})
        key = (v.split, _CELL_OF[v.statistic])
        cells[key] = f"{cells[key]}\n{v.message}" if key in cells else v.message
    return marked


def _row(
    source: str,
    output: Output | None,
    folded: Sequence[Output],
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


def _folded(output: Output, marked: _Marked) -> _Line:
    """Return the share of 1 in each split of an output of 0 and 1."""
    shares = ", ".join(f"{c.split} {NONE if c.mean is None else percent(c.mean)}" for c in output)
    messages = marked.get(output[0].name, {}).values()
    return _Line(f"{output[0].name}: 1 in {shares}", "\n".join(messages))


def _numbers(key: str, output: Output, marked: _Marked) -> _Cell:
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
