"""report.html: one page without any outside resource, for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from components.normalization_validator.check import ID_KINDS, mean_shift
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
    for i, reference in enumerate(train.columns):
        columns = [split.columns[i] for split in report.splits]
        window = _window([c.histogram for c in columns if c.histogram is not None])
        for k, column in enumerate(columns):
            judged = column is not reference and column.kind not in ID_KINDS
            shift = mean_shift(column, reference) if judged else None
            rows.append(_row(column, shift, window, marked, order=i * len(columns) + k))
    verdict = "BLESSED" if report.blessed else "NOT BLESSED"
    tiles = [("Columns", f"{len(train.columns):,}")]
    tiles += [(f"Rows in {split.split}", f"{split.rows:,}") for split in report.splits]
    tiles += [("Violated limits", f"{len(report.violations):,}")]
    head = "".join(
        f'<th scope="col" class="{css}" tabindex="0" title="{escape(title)}">{escape(name)}</th>'
        for name, css, title in _HEAD
    )
    return _PAGE.format(
        style=_STYLE,
        script=_SCRIPT,
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
    ("Shift", "", "(mean - train mean) / train std"),
    ("Imputed", "", "share of values that replace a missing one"),
    ("Non-finite", "", "share of NaN and infinite values"),
)

_CELL_OF = {
    "mean": "mean",
    "std": "std",
    "std_ratio": "std",
    "min": "min",
    "max": "max",
    "mean_shift": "shift",
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
    shift: float | None,
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
        return 2.0**self.exponent

    @property
    def low(self) -> float:
        return self.first * self.width

    @property
    def high(self) -> float:
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


_STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1c2230; --soft: #626b7d;
  --line: #e1e5ec; --bar: #3b6fd4; --bar2: #e2a23b; --bad: #b3261e; --bad-soft: #fdecea;
  --good: #14713d; --good-soft: #e3f4ea; --stripe: #fafbfc; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1a1f28; --ink: #e4e8f0;
  --soft: #98a2b5; --line: #2c3340; --bar: #6f9bf0; --bar2: #e0ac57; --bad: #ff8f85;
  --bad-soft: #43211f; --good: #6fd69b; --good-soft: #17382a; --stripe: #1d232d; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 26px 24px 48px; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header { display: flex; align-items: center; gap: 14px; flex-wrap: wrap; }
h1 { font-size: 22px; font-weight: 650; margin: 0; letter-spacing: -0.01em; }
.verdict { font-size: 12px; font-weight: 700; letter-spacing: 0.04em; padding: 3px 10px;
  border-radius: 99px; }
.verdict.good { color: var(--good); background: var(--good-soft); }
.verdict.bad { color: var(--bad); background: var(--bad-soft); }
dl { display: flex; gap: 12px; flex-wrap: wrap; margin: 18px 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 16px; min-width: 116px; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.lead { color: var(--soft); }
details { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--bad);
  border-radius: 8px; padding: 10px 16px; margin: 0 0 18px; }
summary { cursor: pointer; font-weight: 600; }
details ul { margin: 8px 0 2px; padding-left: 18px; overflow-wrap: anywhere; }
.tools { display: flex; gap: 18px; align-items: center; flex-wrap: wrap; margin: 0 0 10px;
  color: var(--soft); font-size: 13px; }
.tools input[type=search] { font: inherit; color: inherit; background: var(--card); width: 220px;
  border: 1px solid var(--line); border-radius: 8px; padding: 6px 10px; }
.key::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 6px; background: var(--bar); }
.key.imputed::before { background: var(--bar2); }
.frame { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; white-space: nowrap; font-weight: 400; }
.text, .plot { text-align: left; }
thead th { color: var(--soft); font-size: 12px; font-weight: 600; cursor: pointer;
  user-select: none; border-bottom: 1px solid var(--line); padding: 9px 10px; }
thead th:hover, thead th[aria-sort] { color: var(--ink); }
thead th[aria-sort=ascending]::after { content: " ↑"; }
thead th[aria-sort=descending]::after { content: " ↓"; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody tr:hover > * { background: var(--stripe); }
tbody th { font-weight: 600; }
tbody tr.violated > th { box-shadow: inset 3px 0 var(--bad); }
tbody tr > td.bad { background: var(--bad-soft); color: var(--bad); font-weight: 700; }
.tag { font-size: 11px; font-weight: 500; color: var(--soft); border: 1px solid var(--line);
  border-radius: 99px; padding: 0 7px; margin-left: 4px; }
svg { display: block; }
svg .observed { fill: var(--bar); } svg .imputed { fill: var(--bar2); }
svg .axis { stroke: var(--line); } svg text { fill: var(--soft); font-size: 9px; }
svg text.end { text-anchor: end; } svg text.middle { text-anchor: middle; }
"""

_SCRIPT = """
const table = document.querySelector("table"), body = table.tBodies[0];
const rows = Array.from(body.rows);
const heads = Array.from(table.tHead.rows[0].cells);
function sortBy(head, index) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  heads.forEach(h => h.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = head.classList.contains("text");
  const key = r => r.cells[index].dataset.v;
  rows.sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === y) return a.dataset.order - b.dataset.order;
    if (x === "") return 1;
    if (y === "") return -1;
    const n = text ? x.localeCompare(y, undefined, {numeric: true}) : toNumber(x) - toNumber(y);
    return up ? n : -n;
  });
  body.append(...rows);
}
const toNumber = v => v === "inf" ? Infinity : v === "-inf" ? -Infinity : Number(v);
heads.forEach((head, i) => {
  head.addEventListener("click", () => sortBy(head, i));
  head.addEventListener("keydown", e => { if (e.key === "Enter") sortBy(head, i); });
});
const search = document.getElementById("search"), only = document.getElementById("only");
function filter() {
  const wanted = search.value.toLowerCase();
  rows.forEach(r => {
    const hit = r.textContent.toLowerCase().includes(wanted);
    r.hidden = !hit || (only.checked && !r.classList.contains("violated"));
  });
}
search.addEventListener("input", filter);
only.addEventListener("change", filter);
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Normalization report</title>
<style>{style}</style>
</head>
<body>
<header><h1>Normalization report</h1><span class="verdict {verdict_class}">{verdict}</span></header>
<dl>{tiles}</dl>
{violations}
<div class="tools">
<input type="search" id="search" placeholder="Filter columns" aria-label="Filter columns"/>
<label><input type="checkbox" id="only"/> violated only</label>
<span class="key">value of the data</span><span class="key imputed">imputed</span>
</div>
<div class="frame">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<script>{script}</script>
</body>
</html>
"""
