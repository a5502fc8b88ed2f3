"""report.html: one page without any outside resource, for a person.

A row of its table is a raw column, and what it became: a histogram of both, and the numbers of each
split in a line. A column that became several outputs has a row for each; those of 0 and 1 alone
(indicators, one_hot) are folded into a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

from components.normalization_validator.number_text import NONE, percent, short
from components.normalization_validator.page import PAGE, SCRIPT, STYLE
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


def render(report: Report) -> str:
    """The page as text; the same report gives the same text."""
    train = report.split(report.limits.train_split)
    verdict = "within limits"
    if not report.blessed:
        count = len(report.violations)
        verdict = f"{count:,} limit{'s' if count != 1 else ''} violated"
    sources = [report.sources.get(column.name, column.name) for column in train.columns]
    tiles = [("Columns", f"{len(set(sources)):,}"), ("Outputs", f"{len(sources):,}")]
    tiles += [(f"Rows in {split.split}", f"{split.rows:,}") for split in report.splits]
    tiles += [("Violated limits", f"{len(report.violations):,}")]
    head = "".join(
        f'<th scope="col" class="{css}" tabindex="0" title="{escape(title)}">{escape(name)}</th>'
        for name, css, title in _HEAD
    )
    return PAGE.format(
        style=STYLE,
        script=SCRIPT,
        verdict=f"normalisation: {verdict}",
        verdict_class="good" if report.blessed else "bad",
        tiles="".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in tiles),
        violations=_violations(report.violations),
        head=head,
        rows="\n".join(_rows(report, sources)),
    )


def _violations(violations: Sequence[Violation]) -> str:
    if not violations:
        return '<p class="lead">Every column is within its limits.</p>'
    items = "".join(f"<li>{escape(v.message)}</li>" for v in violations)
    opened = ' open="open"' if len(violations) <= 12 else ""
    noun = "limit is" if len(violations) == 1 else "limits are"
    return (
        f"<details{opened}><summary>{len(violations):,} {noun} violated</summary>"
        f"<ul>{items}</ul></details>"
    )


def _rows(report: Report, sources: Sequence[str]) -> list[str]:
    """The rows of the table, the outputs of a raw column one after the other."""
    outputs = list(zip(*(split.columns for split in report.splits), strict=True))
    first: dict[str, int] = {}
    for place, source in enumerate(sources):
        first.setdefault(source, place)
    order = sorted(range(len(sources)), key=lambda place: first[sources[place]])
    raw = {(each.name, each.split): each for each in report.raw}
    marked = _by_cell(report.violations)
    rows: list[str] = []
    for source, places in groupby(order, key=lambda place: sources[place]):
        found = [outputs[place] for place in places]
        folded, shown = [], []
        for output in found:
            (folded if len(found) > 1 and _is_zero_one(output) else shown).append(output)
        lines = [raw.get((source, column.split)) for column in found[0]]
        for output in shown or [None]:
            rows.append(_row(source, output, folded, lines, marked, order=len(rows)))
            folded, lines = [], [None] * len(lines)  # in the first row of the column alone
    return rows


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
    *,
    order: int,
) -> str:
    """A row of the table.

    Args:
        source: The raw column.
        output: What the row is about; None: of all outputs of 0 and 1.
        folded: Outputs that are listed below the name.
        raw: The raw column in each split, where that is known and shown here.
        marked: Sentences of each violated limit, by column, then by split and cell.
        order: The row's place, from 0.
    """
    columns = output or folded[0]
    names = {column.name for column in (columns[0], *(each[0] for each in folded))}
    is_violated = not names.isdisjoint(marked)
    window = common_window([c.histogram for c in output or () if c.histogram is not None])
    name = source if output is None else output[0].name
    cells = [
        _name_cell(name, source, output, folded, marked),
        _cell([raw_plot(each) if each else "" for each in raw], "plot", order),
        _cell([histogram_plot(each, window) for each in output or ()], "plot", order),
        _cell([escape(column.split) for column in columns], "text", order),
        *(_numbers(key, output or (), marked) for key in _NUMBERS),
    ]
    css = ' class="violated"' if is_violated else ""
    return f'<tr{css} data-order="{order}">{"".join(cells)}</tr>'


def _name_cell(
    name: str,
    source: str,
    output: _Output | None,
    folded: Sequence[_Output],
    marked: _Marked,
) -> str:
    kind = NONE
    tag = ""
    if output is not None:
        train = output[0]
        kind = train.kind or NONE
        tag = "constant" if train.constant else "" if train.count else "no value"
    elif folded:
        kind = folded[0][0].kind or NONE
    of = f" of {source}" if name != source else ""
    note = f' <span class="tag">{tag}</span>' if tag else ""
    return (
        f'<th scope="row" class="text" data-v="{escape(name)}"><div>{_breakable(name)}{note}</div>'
        f'<div class="kind">{escape(kind + of)}</div>{_folded(folded, marked)}</th>'
    )


def _breakable(name: str) -> str:
    """A name that may go on in the next line behind an underscore."""
    return escape(name).replace("_", "_<wbr/>")


def _folded(outputs: Sequence[_Output], marked: _Marked) -> str:
    """The list of outputs of 0 and 1: the share of 1 in each split."""
    if not outputs:
        return ""
    items, is_open = [], ""
    for output in outputs:
        shares = ", ".join(
            f"{c.split} {NONE if c.mean is None else percent(c.mean)}" for c in output
        )
        messages = marked.get(output[0].name, {}).values()
        css = f' class="bad" title="{escape(chr(10).join(messages))}"' if messages else ""
        is_open = is_open or (' open="open"' if messages else "")
        items.append(f"<li{css}>{escape(output[0].name)}: 1 in {escape(shares)}</li>")
    noun = "output" if len(outputs) == 1 else "outputs"
    summary = f"{len(outputs):,} {noun} of 0 and 1"
    shown = f"<summary>{summary}</summary><ul>{''.join(items)}</ul>"
    return f'<details class="folded"{is_open}>{shown}</details>'


def _cell(lines: Sequence[str], css: str, order: int | str) -> str:
    shown = "".join(f"<div>{line}</div>" for line in lines)
    return f'<td class="{css}" data-v="{order}">{shown}</td>'


_NUMBERS = ("mean", "std", "min", "max", "moved", "shift", "imputed", "non_finite")


def _numbers(key: str, output: _Output, marked: _Marked) -> str:
    """A cell with the number of each split in a line; rows sort by the largest of them."""
    lines, values = [], []
    for column in output:
        value, text = _number(key, column)
        if value is not None and not math.isnan(value):
            values.append(float(value))
        message = marked.get(column.name, {}).get((column.split, key))
        css = f' class="bad" title="{escape(message)}"' if message else ""
        lines.append(f"<div{css}>{escape(text)}</div>")
    largest = repr(max(values)) if values else ""
    return f'<td data-v="{largest}">{"".join(lines)}</td>'


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
