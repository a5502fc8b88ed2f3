"""report.html: one page without any outside resource, for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from components.normalization_validator.page import PAGE, SCRIPT, STYLE
from components.normalization_validator.report import (
    ColumnStatistics,
    Histogram,
    Report,
    Violation,
)

_BARS = 48  # at most, per histogram
_TAIL = 0.001  # share of the values that a histogram may leave out on either side
_WIDTH, _HEIGHT = 168, 34
_ZERO = 1e-7  # what is nearer to 0 is shown as 0: float32 has no more digits beside 1
_NONE, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def render(report: Report) -> str:
    """The page as text; the same report gives the same text."""
    train = report.split(report.limits.train_split)
    marked = _by_cell(report.violations)
    rows = []
    for i in range(len(train.columns)):
        columns = [split.columns[i] for split in report.splits]
        window = _window([c.histogram for c in columns if c.histogram is not None])
        for k, column in enumerate(columns):
            rows.append(_row(column, window, marked, order=i * len(columns) + k))
    verdict = "BLESSED" if report.blessed else "NOT BLESSED"
    tiles = [("Columns", f"{len(train.columns):,}")]
    tiles += [(f"Rows in {split.split}", f"{split.rows:,}") for split in report.splits]
    tiles += [("Violated limits", f"{len(report.violations):,}")]
    head = "".join(
        f'<th scope="col" class="{css}" tabindex="0" title="{escape(title)}">{escape(name)}</th>'
        for name, css, title in _HEAD
    )
    return PAGE.format(
        style=STYLE,
        script=SCRIPT,
        verdict=verdict,
        verdict_class="good" if report.blessed else "bad",
        tiles="".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in tiles),
        violations=_violations(report.violations),
        head=head,
        rows="\n".join(rows),
    )


_HEAD = (
    ("Column", "text", "name of the transformed column"),
    ("Kind", "text", "how it was scaled or encoded"),
    ("Split", "text", "split of the examples"),
    ("Histogram", "plot", "same axis for every split of a column; its height is its highest bar"),
    ("Count", "", "finite values that were not imputed: what mean and std are over"),
    ("Mean", "", "over values that were not imputed"),
    ("Std", "", "over values that were not imputed"),
    ("Min", "", "over every finite value"),
    ("Max", "", "over every finite value"),
    ("Moved", "", "largest difference to train of the share of values in one interval"),
    ("Mean shift", "", "(mean - train mean) / train std"),
    ("Imputed", "", "share of values that replace a missing one"),
    ("Non-finite", "", "share of NaN and infinite values"),
)

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


def _by_cell(violations: Sequence[Violation]) -> dict[tuple[str, str, str], str]:
    marked: dict[tuple[str, str, str], str] = {}
    for v in violations:
        key = (v.column, v.split, _CELL_OF[v.statistic])
        marked[key] = f"{marked[key]}\n{v.message}" if key in marked else v.message
    return marked


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


def _row(
    column: ColumnStatistics,
    window: Window | None,
    marked: dict[tuple[str, str, str], str],
    *,
    order: int,
) -> str:
    bad = any((column.name, column.split, cell) in marked for cell in _CELL_OF.values())

    def cell(name: str, value: float | None, text: str) -> str:
        message = marked.get((column.name, column.split, name))
        css = f' class="bad" title="{escape(message)}"' if message else ""
        key = "" if value is None or math.isnan(value) else repr(float(value))
        return f'<td{css} data-v="{key}">{escape(text)}</td>'

    def label(value: str) -> str:
        return f'<td class="text" data-v="{escape(value)}">{escape(value)}</td>'

    def share(name: str, value: float) -> str:
        return cell(name, value, _percent(value))

    moved, shift = (column.shift.moved, column.shift.mean) if column.shift else (None, None)
    tag = "constant" if column.constant else "" if column.count else "no value"
    note = f' <span class="tag">{tag}</span>' if tag else ""
    name = (
        f'<th scope="row" class="text" data-v="{escape(column.name)}">{escape(column.name)}'
        f"{note}</th>"
    )
    cells = [
        name,
        label(column.kind or _NONE),
        label(column.split),
        f'<td class="plot" data-v="{order}">{_plot(column, window)}</td>',
        cell("count", column.count, f"{column.count:,}"),
        cell("mean", column.mean, _short(column.mean)),
        cell("std", column.std, _short(column.std)),
        cell("min", column.min, _short(column.min)),
        cell("max", column.max, _short(column.max)),
        cell("moved", moved, _short(moved)),
        cell("shift", shift, _short(shift)),
        share("imputed", column.imputed_share),
        share("non_finite", column.non_finite_share),
    ]
    css = ' class="violated"' if bad else ""
    return f'<tr{css} data-order="{order}">{"".join(cells)}</tr>'


class Window(NamedTuple):
    """The bars that every histogram of a column is drawn with: bins of 2^exponent."""

    exponent: int
    first: int
    bars: int

    @property
    def width(self) -> float:
        """Of a bar."""
        return 2.0**self.exponent

    @property
    def low(self) -> float:
        """Left edge of the first bar."""
        return self.first * self.width

    @property
    def high(self) -> float:
        """Right edge of the last bar."""
        return (self.first + self.bars) * self.width


def _window(histograms: Sequence[Histogram]) -> Window | None:
    """At most 48 bars that show all but a thousandth of the values at either end, in each split."""
    if not histograms:
        return None
    exponent = max(h.exponent for h in histograms)
    firsts, lasts = [], []
    for h in histograms:
        cumulative = h.below + np.cumsum(np.add(h.observed, h.imputed))
        total, end = cumulative[-1] + h.above, len(cumulative) - 1
        first = min(int(np.searchsorted(cumulative, _TAIL * total, side="right")), end)
        last = min(int(np.searchsorted(cumulative, total - _TAIL * total, side="left")), end)
        firsts.append((h.first_bin + first) >> (exponent - h.exponent))
        lasts.append((h.first_bin + last) >> (exponent - h.exponent))
    first, last = min(firsts), max(lasts)
    while last - first >= _BARS:
        exponent, first, last = exponent + 1, first >> 1, last >> 1
    return Window(exponent, first, last - first + 1)


def _bars(histogram: Histogram, window: Window) -> tuple[np.ndarray, int, int]:
    """Counts [2, bars] on the window, and how many values lie below and above it."""
    counts = np.array([histogram.observed, histogram.imputed], dtype=np.int64)
    bins = (histogram.first_bin + np.arange(counts.shape[1])) >> (
        window.exponent - histogram.exponent
    )
    index = bins - window.first
    inside = (index >= 0) & (index < window.bars)
    bars = np.zeros([2, window.bars], dtype=np.int64)
    for g in range(2):
        np.add.at(bars[g], index[inside], counts[g, inside])
    below = histogram.below + int(counts[:, index < 0].sum())
    above = histogram.above + int(counts[:, index >= window.bars].sum())
    return bars, below, above


def _plot(column: ColumnStatistics, window: Window | None) -> str:
    if column.histogram is None or window is None:
        return _NONE
    bars, below, above = _bars(column.histogram, window)
    top = int(bars.sum(0).max())
    slot = _WIDTH / max(window.bars, 12)
    left = (_WIDTH - slot * window.bars) / 2
    scale = (_HEIGHT - 2) / top if top else 0.0
    observed, imputed = [], []
    for i in range(window.bars):
        base = float(_HEIGHT)
        for g, paths in enumerate((observed, imputed)):
            if not bars[g, i]:
                continue
            height = max(float(bars[g, i]) * scale, 0.8)
            x, width = left + i * slot, max(slot - 0.6, 0.5)
            paths.append(f"M{x:.1f} {base:.1f}v{-height:.1f}h{width:.1f}v{height:.1f}z")
            base -= height
    words = [
        f"{column.name}, {column.split}: {_short(window.low)} to {_short(window.high)}, "
        f"bars {_short(window.width)} wide, highest {top:,}"
    ]
    if below:
        words.append(f"{below:,} below")
    if above:
        words.append(f"{above:,} above")
    imputed_path = f'<path class="imputed" d="{"".join(imputed)}"/>' if imputed else ""
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 11}" width="{_WIDTH}" height="{_HEIGHT + 11}" '
        f'role="img"><title>{escape("; ".join(words))}</title>'
        f'<path class="observed" d="{"".join(observed)}"/>{imputed_path}'
        f'<path class="axis" d="M0 {_HEIGHT + 0.5}h{_WIDTH}"/>'
        f"{_axis_labels(column, window)}</svg>"
    )


def _axis_labels(column: ColumnStatistics, window: Window) -> str:
    y = _HEIGHT + 10
    if window.bars == 1 and column.constant:
        return f'<text x="{_WIDTH / 2:g}" y="{y}" class="middle">{_short(column.mean)}</text>'
    return (
        f'<text x="0" y="{y}">{_short(window.low)}</text>'
        f'<text x="{_WIDTH}" y="{y}" class="end">{_short(window.high)}</text>'
    )


def _short(value: float | None) -> str:
    if value is None:
        return _NONE
    if math.isinf(value):
        return "∞" if value > 0 else _MINUS + "∞"
    value = 0.0 if abs(value) < _ZERO else value
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    else:
        text = f"{value:.1e}"
    return text.replace("-", _MINUS)


def _percent(share: float) -> str:
    if share == 0.0:
        return "0"
    return f"{share:.2%}" if share >= 1e-4 else "<0.01%"
