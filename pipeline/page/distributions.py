"""Charts of the values of a column: raw ones in each split, and what Transform made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from components.normalization_validator.report import ColumnStatistics, RawColumn
from pipeline.common.json_types import JsonObject
from pipeline.page.common_bars import Window, bars_of
from pipeline.page.drift import Quantiles, shares_up_to
from pipeline.page.elements import Block, Chart, Text
from pipeline.page.shown_numbers import percent, short

SHOWN_VALUES = 12
"""Bars of a chart of texts."""

_CENTRAL_BARS = 16

_SQUEEZED = 0.3
"""Where the deciles take less of the range of the values, a chart shows only what is between."""


def raw_chart(
    columns: Sequence[RawColumn], title: str, quantiles: Mapping[str, Quantiles] | None = None
) -> Block:
    """Return the values of a raw column, as shares of the rows with a value in each split.

    Args:
        columns: The column in each split that has a value of it, the first one being that whose
            most frequent values are shown.
        title: Title of the chart.
        quantiles: Split -> deciles of a column of numbers. With them, values far out do not
            squeeze the others into one bar.
    """
    if not columns:
        return Text(f"{title}: not known.", "quiet")
    if any(column.labels is None for column in columns):
        numbers = [column for column in columns if column.labels is None]
        known = [(quantiles or {}).get(column.split) for column in numbers]
        return _central([each for each in known if each is not None], numbers, title) or _numbers(
            numbers, title
        )
    return _texts(columns, title)


def _central(
    quantiles: Sequence[Quantiles], columns: Sequence[RawColumn], title: str
) -> Block | None:
    """Return a chart from the lowest to the highest decile; None if it shows most of the range."""
    if len(quantiles) < len(columns):
        return None
    low = min(each.edges[1] for each in quantiles)
    high = max(each.edges[-2] for each in quantiles)
    width = max(each.edges[-1] for each in quantiles) - min(each.edges[0] for each in quantiles)
    if not 0 < high - low < _SQUEEZED * width:
        return None
    edges = np.linspace(low, high, _CENTRAL_BARS + 1)
    data: dict[str, Sequence[float]] = {
        "low": _rounded(edges[:-1], 6),
        "high": _rounded(edges[1:], 6),
    }
    outside = []
    for column, each in zip(columns, quantiles, strict=True):
        up_to, below = shares_up_to(each, edges)
        # A value on an edge belongs to the bar above it, but for the last one.
        bounds = np.concatenate([below[:-1], up_to[-1:]])
        data[column.split] = _rounded(np.diff(bounds), 4)
        outside.append(f"{column.split} {percent(bounds[0])} and {percent(1 - bounds[-1])}")
    splits = [column.split for column in columns]
    return Chart(
        f"{title}, from the lowest to the highest decile",
        _overlaid(splits),
        data,
        f"Below and above lie: of {', of '.join(outside)}.",
    )


def _numbers(columns: Sequence[RawColumn], title: str) -> Block:
    lows = [column.low for column in columns if column.low is not None]
    highs = [column.high for column in columns if column.high is not None]
    low, high = min(lows), max(highs)
    if low == high:
        return Text(f"{title}: every value is {short(low, 6)}.")
    edges = np.linspace(low, high, max(len(column.bars) for column in columns) + 1)
    shares = {column.split: _shares(column, edges) for column in columns}
    ranges = {(column.low, column.high) for column in columns}
    description = "TFDV's intervals of equal width."
    if len(ranges) > 1:
        description = "The splits have other ranges: their shares per interval are interpolated."
    return Chart(
        title,
        _overlaid(list(shares)),
        {"low": _rounded(edges[:-1], 6), "high": _rounded(edges[1:], 6), **shares},
        description,
    )


def _shares(column: RawColumn, edges: np.ndarray) -> list[float]:
    """Return the share of the values between each two edges; uniform within a bar."""
    assert column.low is not None
    assert column.high is not None
    counts = np.asarray(column.bars, dtype=np.float64)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    if column.low == column.high:  # all values are one
        place = min(int(np.searchsorted(edges, column.low, side="right")) - 1, len(edges) - 2)
        shares = np.zeros(len(edges) - 1)
        shares[place] = 1.0
    else:
        own = np.linspace(column.low, column.high, len(counts) + 1)
        shares = np.diff(np.interp(edges, own, below)) / below[-1]
    return _rounded(shares, 4)


def _texts(columns: Sequence[RawColumn], title: str) -> Block:
    values = [str(label) for label in (columns[0].labels or ())[:SHOWN_VALUES]]
    data: dict[str, Sequence[str | float | None]] = {"value": values}
    for column in columns:
        counts = dict(zip(column.labels or (), column.bars, strict=False))
        shares = [counts[value] / column.values if value in counts else None for value in values]
        data[column.split] = [None if each is None else float(f"{each:.4g}") for each in shares]
    more = len(columns[0].labels or ()) - len(values)
    return Chart(
        title,
        _grouped([column.split for column in columns], len(values)),
        data,
        f"The {len(values)} most frequent values." if more > 0 else "",
    )


def transformed_chart(column: ColumnStatistics, window: Window | None) -> Block:
    """Return the values of a transformed column in a split, on the bars of its window.

    Args:
        column: The column in a split.
        window: The bars that are the same for all splits.
    """
    title = f"Transformed, {column.split}"
    if column.histogram is None or window is None:
        return Text(f"{title}: no finite value.", "quiet")
    if column.constant and column.mean is not None and window.bars == 1:
        return Text(f"{title}: every value is {short(column.mean, 6)}.")
    bars = bars_of(column.histogram, window)
    # The ends of the window, too: so every split has the same axis.
    shown = np.union1d(np.flatnonzero(bars.observed + bars.imputed), [0, window.bars - 1])
    data: dict[str, Sequence[float]] = {
        "low": _rounded(window.low + shown * window.width, 6),
        "high": _rounded(window.low + (shown + 1) * window.width, 6),
        "observed": bars.observed[shown].tolist(),
    }
    has_imputed = bool(bars.imputed.any())
    if has_imputed:
        data["imputed"] = bars.imputed[shown].tolist()
    outside = [
        f"{count:,} {'value lies' if count == 1 else 'values lie'} {where} the chart"
        for count, where in ((bars.below, "below"), (bars.above, "above"))
        if count
    ]
    if outside:
        title += f" ({' and '.join(outside)})"
    description = "Imputed values are stacked on observed ones." if has_imputed else ""
    return Chart(title, _stacked(has_imputed=has_imputed), data, description)


def _overlaid(splits: Sequence[str]) -> JsonObject:
    return {
        "width": "container",
        "height": 150,
        "transform": [{"fold": list(splits), "as": ["split", "share"]}],
        "mark": {"type": "bar", "opacity": 0.6 if len(splits) > 1 else 1, "binSpacing": 0},
        "encoding": {
            "x": _axis("low"),
            "x2": {"field": "high"},
            "y": {**_share(), "stack": None},
            "y2": {"datum": 0},
            "color": {"field": "split", "type": "nominal", "title": None, "sort": list(splits)},
            "tooltip": [
                {"field": "split", "type": "nominal"},
                {"field": "low", "type": "quantitative", "title": "from", "format": ".5~g"},
                {"field": "high", "type": "quantitative", "title": "to", "format": ".5~g"},
                {"field": "share", "type": "quantitative", "format": ".2~%"},
            ],
        },
    }


def _grouped(splits: Sequence[str], values: int) -> JsonObject:
    return {
        "width": "container",
        "height": values * max(22, 9 * len(splits)),
        "transform": [{"fold": list(splits), "as": ["split", "share"]}],
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {
                "field": "value",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"labelLimit": 180},
            },
            "yOffset": {"field": "split", "type": "nominal", "sort": list(splits)},
            "x": _share(),
            "color": {"field": "split", "type": "nominal", "title": None, "sort": list(splits)},
        },
    }


def _stacked(*, has_imputed: bool) -> JsonObject:
    parts = ["observed", "imputed"] if has_imputed else ["observed"]
    color = {"field": "part", "type": "nominal", "title": None, "sort": parts}
    return {
        "width": "container",
        "height": 150,
        "transform": [
            {"fold": parts, "as": ["part", "rows"]},
            {
                "stack": "rows",
                "groupby": ["low"],
                "sort": [{"field": "part", "order": "descending"}],
                "as": ["from", "to"],
            },
        ],
        "mark": {"type": "bar", "binSpacing": 0},
        "encoding": {
            "x": _axis("low"),
            "x2": {"field": "high"},
            "y": {"field": "from", "type": "quantitative", "title": "rows"},
            "y2": {"field": "to"},
            **({"color": color} if has_imputed else {}),
            "tooltip": [
                {"field": "low", "type": "quantitative", "title": "from", "format": ".5~g"},
                {"field": "high", "type": "quantitative", "title": "to", "format": ".5~g"},
                *({"field": each, "type": "quantitative", "format": ",~g"} for each in parts),
            ],
        },
    }


def _axis(field: str) -> JsonObject:
    return {
        "field": field,
        "type": "quantitative",
        "title": None,
        "scale": {"zero": False, "nice": False},
        "axis": {"format": ".4~g", "labelOverlap": True, "tickCount": 6},
    }


def _share() -> JsonObject:
    return {"field": "share", "type": "quantitative", "title": None, "axis": {"format": "~%"}}


def _rounded(values: np.ndarray, digits: int) -> list[float]:
    """Return floats with some significant digits, as short as JSON writes them."""
    found = [float(f"{each:.{digits}g}") for each in values.tolist()]
    return [int(each) if each.is_integer() and abs(each) < 2**53 else each for each in found]


def by_split(columns: Sequence[RawColumn]) -> Mapping[str, list[RawColumn]]:
    """Return column -> its distribution in each split, in the order of the splits."""
    found: dict[str, list[RawColumn]] = {}
    for column in columns:
        found.setdefault(column.name, []).append(column)
    return found
