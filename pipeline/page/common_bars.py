"""Bars that show the histograms of a column in several splits on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from components.normalization_validator.report import Histogram

_MOST_BARS = 48
_TAIL = 0.001  # share of the values that may lie outside of the bars on either side


class Window(NamedTuple):
    """The bars that every histogram of a column is drawn with: bins of 2^exponent."""

    exponent: int
    first: int
    bars: int

    @property
    def width(self) -> float:
        """Width of a bar."""
        return 2.0**self.exponent

    @property
    def low(self) -> float:
        """Left edge of the first bar."""
        return self.first * self.width

    @property
    def high(self) -> float:
        """Right edge of the last bar."""
        return (self.first + self.bars) * self.width


class Bars(NamedTuple):
    """A histogram on the bars of a window.

    Attributes:
        observed: Int64 `[bars]`, number of observed values in each.
        imputed: Int64 `[bars]`, number of imputed values in each.
        below: Number of values below the window.
        above: Number of values above it.
    """

    observed: np.ndarray
    imputed: np.ndarray
    below: int
    above: int


def common_window(histograms: Sequence[Histogram]) -> Window | None:
    """Return at most 48 bars that show all but 0.1 % of the values at either end, per split.

    Args:
        histograms: A column in each split.

    Returns:
        The bars; None without a histogram.
    """
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
    while last - first >= _MOST_BARS:
        exponent, first, last = exponent + 1, first >> 1, last >> 1
    return Window(exponent, first, last - first + 1)


def bars_of(histogram: Histogram, window: Window) -> Bars:
    """Return the values of a histogram in each bar of a window."""
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
    return Bars(bars[0], bars[1], below, above)
