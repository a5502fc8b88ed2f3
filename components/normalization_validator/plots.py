"""The histograms of report.html, as SVG: of raw columns, and of what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from components.normalization_validator.common_bars import Window, bars_of
from components.normalization_validator.number_text import NONE, short
from components.normalization_validator.report import ColumnStatistics, RawColumn

_SHOWN = 22  # characters of a text below its bar
_WIDTH, _HEIGHT = 132, 26  # the lines of a row of the table are as high: templates/style.css.jinja


def histogram_plot(column: ColumnStatistics, window: Window | None) -> str:
    """Draw the values of a transformed column in a split, on the bars of its window."""
    if column.histogram is None or window is None:
        return NONE
    bars = bars_of(column.histogram, window)
    top = int((bars.observed + bars.imputed).max())
    slot = _WIDTH / max(window.bars, 12)
    left = (_WIDTH - slot * window.bars) / 2
    scale = (_HEIGHT - 2) / top if top else 0.0
    observed, imputed = [], []
    for i in range(window.bars):
        base = float(_HEIGHT)
        for counts, paths in ((bars.observed, observed), (bars.imputed, imputed)):
            if not counts[i]:
                continue
            height = max(float(counts[i]) * scale, 0.8)
            x, width = left + i * slot, max(slot - 0.6, 0.5)
            paths.append(f"M{x:.1f} {base:.1f}v{-height:.1f}h{width:.1f}v{height:.1f}z")
            base -= height
    words = [
        f"{column.name}, {column.split}: {short(window.low)} to {short(window.high)}, "
        f"bars {short(window.width)} wide, highest {top:,}"
    ]
    if bars.below:
        words.append(f"{bars.below:,} below")
    if bars.above:
        words.append(f"{bars.above:,} above")
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
