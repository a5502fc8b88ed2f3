"""The histograms of report.html, as SVG: of raw columns, and of what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from components.normalization_validator.number_text import NONE, short
from components.normalization_validator.report import ColumnStatistics, Histogram, RawColumn

_BARS = 48  # at most, per histogram
_TAIL = 0.001  # share of the values that a histogram may leave out on either side
_SHOWN = 22  # characters of a text below its bar
_WIDTH, _HEIGHT = 132, 26  # the lines of a row of the table are as high: templates/style.css.jinja


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


def common_window(histograms: Sequence[Histogram]) -> Window | None:
    """Return at most 48 bars that show all but 0.1 % of the values at either end, per split."""
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
    """Count [2, bars] on the window, and how many values lie below and above it."""
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


def histogram_plot(column: ColumnStatistics, window: Window | None) -> str:
    """Draw the values of a transformed column in a split, on the bars of its window."""
    if column.histogram is None or window is None:
        return NONE
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
        f"{column.name}, {column.split}: {short(window.low)} to {short(window.high)}, "
        f"bars {short(window.width)} wide, highest {top:,}"
    ]
    if below:
        words.append(f"{below:,} below")
    if above:
        words.append(f"{above:,} above")
    ends = (short(window.low), short(window.high))
    if window.bars == 1 and column.constant:
        ends = (short(column.mean),)
    return _svg("; ".join(words), "".join(observed), "".join(imputed), ends)


def raw_plot(column: RawColumn) -> str:
    """Draw a bar for each interval of a number, or for each of the most frequent texts."""
    top = max(column.bars)
    slot = _WIDTH / max(len(column.bars), 10)
    paths = []
    for i, count in enumerate(column.bars):
        height = max((_HEIGHT - 2) * count / top, 0.8) if count else 0.0
        paths.append(f"M{i * slot:.1f} {_HEIGHT}v{-height:.1f}h{slot - 0.6:.1f}v{height:.1f}z")
    rows = column.values + column.missing
    words = f"{column.name}, {column.split}, raw: {column.missing / rows:.2%} missing; "
    if column.labels is None:
        words += f"{short(column.low)} to {short(column.high)}, highest bar {top:,.0f}"
        ends = (short(column.low), short(column.high))
    else:
        shown = zip(column.labels[:5], column.bars, strict=False)
        words += "most frequent: " + ", ".join(f"{label!r} {count:,.0f}" for label, count in shown)
        ends = (column.labels[0][:_SHOWN],)
    return _svg(words, "".join(paths), "", ends, css="raw")


def _svg(
    title: str, observed: str, imputed: str, ends: Sequence[str], css: str = "observed"
) -> str:
    second = f'<path class="imputed" d="{imputed}"/>' if imputed else ""
    y = _HEIGHT + 9
    anchors = [(0, "")] if css == "raw" else [(_WIDTH / 2, ' class="middle"')]
    if len(ends) == 2:
        anchors = [(0, ""), (_WIDTH, ' class="end"')]
    texts = "".join(
        f'<text x="{x:g}" y="{y}"{anchor}>{escape(end)}</text>'
        for (x, anchor), end in zip(anchors, ends, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 11}" width="{_WIDTH}" height="{_HEIGHT + 11}" '
        f'role="img"><title>{escape(title)}</title><path class="{css}" d="{observed}"/>{second}'
        f'<path class="axis" d="M0 {_HEIGHT + 0.5}h{_WIDTH}"/>{texts}</svg>'
    )
