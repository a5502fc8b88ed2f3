"""Vega-Lite specifications of the charts, and the distributions of a column.

Colours, fonts and the background come from the theme in `templates/page.js`, so no specification
names a colour. https://vega.github.io/vega-lite/docs describes the fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from components.normalization_validator.report import BIN_WIDTH, ColumnStatistics, RawColumn
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.page.elements import Block, Chart, Text, rounded, short

SHOWN_VALUES = 12
"""Bars of a chart of texts."""

_MOST_BINS = 64  # of a transformed column


def _number(field: str, title: str | None, **more: JsonValue) -> JsonObject:
    return {"field": field, "type": "quantitative", "title": title, **more}


def _text(field: str, title: str | None, **more: JsonValue) -> JsonObject:
    return {"field": field, "type": "nominal", "title": title, **more}


def _chart(
    height: JsonValue, mark: JsonValue, encoding: JsonObject, **more: JsonValue
) -> JsonObject:
    return {"width": "container", "height": height, "mark": mark, "encoding": encoding, **more}


def lines(
    x: str,
    y: str,
    *,
    series: str | None = None,
    kept: int | None = None,
) -> JsonObject:
    """Return a line chart of the fields `x`, `y` and, for several lines, `series`.

    Each is given the title of its axis, or of the legend; `kept` is where a vertical line stands.
    """
    scale: JsonObject = {"zero": False}
    encoding: JsonObject = {
        "x": _number("x", x, scale=scale),
        "y": _number("y", y, scale=scale),
        "tooltip": [_number("x", x), _number("y", y, format=".5~g")],
    }
    if series is not None:
        encoding["color"] = encoding["strokeDash"] = _text("series", series)
    mark = {"type": "line", "point": True, "tooltip": True}
    if kept is None:
        return _chart(220, mark, encoding)
    rule: JsonObject = {
        "data": {"values": [{"x": kept}]},
        "mark": {"type": "rule", "strokeDash": [2, 3]},
        "encoding": {"x": {"field": "x", "type": "quantitative"}},
    }
    layers = [{"mark": mark, "encoding": encoding}, rule]
    return {"width": "container", "height": 220, "layer": layers}


def bars(x: str) -> JsonObject:
    """Return horizontal bars in the order of the data: texts `y`, numbers `x`."""
    y = _text("y", "", sort=None, axis={"labelLimit": 240})
    return _chart({"step": 20}, {"type": "bar", "tooltip": True}, {"y": y, "x": _number("x", x)})


_DIAGONAL: JsonObject = {
    "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
    "mark": {"type": "line", "strokeDash": [4, 4], "opacity": 0.5},
    "encoding": {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
    },
}


def threshold_curve(x: str, y: str, *, diagonal: bool = False) -> JsonObject:
    """Return a curve of the fields `x` and `y` from 0 to 1, with the point at a threshold marked.

    Each point has its threshold in the field `t`; the parameter `threshold` selects one.
    `diagonal`: also draw the line from (0, 0) to (1, 1).
    """
    unit: JsonObject = {"domain": [0, 1], "nice": False}
    encoding = {"x": _number("x", x, scale=unit), "y": _number("y", y, scale=unit)}
    tooltip: JsonValue = [
        _number("t", "threshold", format=".6~g"),
        _number("x", x, format=".4f"),
        _number("y", y, format=".4f"),
    ]
    chosen = "datum.t != null && abs(datum.t - threshold) < 1e-9"
    layers: list[JsonValue] = [
        {"mark": "line", "encoding": {**encoding, "order": {"field": "place"}}},
        {
            "transform": [{"filter": chosen}],
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {**encoding, "tooltip": tooltip},
        },
        {
            "mark": {"type": "point", "opacity": 0, "size": 60, "tooltip": True},
            "encoding": {**encoding, "tooltip": tooltip},
        },
    ]
    return {
        "width": "container",
        "height": 260,
        "params": [{"name": "threshold", "value": 0.5}],
        "layer": [*([_DIAGONAL] if diagonal else []), *layers],
    }


def calibration(y: str, counted: str) -> JsonObject:
    """Return points (`x`, `y`) from 0 to 1 beside the diagonal; `rows` of each is its size."""
    unit: JsonObject = {"domain": [0, 1], "nice": False}
    x = "mean predicted probability"
    encoding = {"x": _number("x", x, scale=unit), "y": _number("y", y, scale=unit)}
    sized: JsonObject = {
        **encoding,
        "size": _number("rows", counted, legend=None),
        "tooltip": [
            _number("x", x, format=".4f"),
            _number("y", y, format=".4f"),
            _number("rows", counted, format=",~g"),
        ],
    }
    points = {"mark": {"type": "point", "filled": True, "opacity": 0.9}, "encoding": sized}
    layers = [_DIAGONAL, {"mark": "line", "encoding": encoding}, points]
    return {"width": "container", "height": 260, "layer": layers}


def confusions(counted: str, order: Sequence[str]) -> JsonObject:
    """Return cells of predicted (`x`) and actual (`y`) classes whose colour is the field `n`."""
    x, y = "predicted class", "actual class"
    encoding: JsonObject = {
        "x": _text("x", x, sort=list(order)),
        "y": _text("y", y, sort=list(order)),
        "color": _number("n", counted, scale={"type": "symlog"}),
        "tooltip": [_text("x", x), _text("y", y), _number("n", counted, format=",~g")],
    }
    return _chart({"step": 26}, {"type": "rect", "tooltip": True}, encoding)


def raw_chart(columns: Sequence[RawColumn], title: str) -> Block:
    """Return the values of a raw column, as shares of the rows with a value in each split.

    The most frequent values are those of the first split of `columns`.
    """
    numbers = [column for column in columns if column.labels is None]
    if not columns:
        return Text(f"{title}: not known.", "quiet")
    return _numbers(numbers, title) if numbers else _texts(columns, title)


def _numbers(columns: Sequence[RawColumn], title: str) -> Block:
    low = min(column.low for column in columns if column.low is not None)
    high = max(column.high for column in columns if column.high is not None)
    if low == high:
        return Text(f"{title}: every value is {short(low, 6)}.")
    edges = np.linspace(low, high, max(len(column.bars) for column in columns) + 1)
    shares = {column.split: _shares(column, edges) for column in columns}
    data = {"low": rounded(edges[:-1]), "high": rounded(edges[1:]), **shares}
    description = "TFDV's intervals of equal width."
    if len({(column.low, column.high) for column in columns}) > 1:
        description = "The splits have other ranges: their shares per interval are interpolated."
    return Chart(
        title, _overlaid(list(shares), "share", {"axis": {"format": "~%"}}), data, description
    )


def _shares(column: RawColumn, edges: np.ndarray) -> list[float | None]:
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
        shares = np.diff(np.interp(edges, own, below)) / column.values
    return rounded(shares, 4)


def _texts(columns: Sequence[RawColumn], title: str) -> Block:
    labels, splits = columns[0].labels or (), [column.split for column in columns]
    values = [str(label) for label in labels[:SHOWN_VALUES]]
    data: dict[str, Sequence[JsonValue]] = {"value": values}
    for column in columns:
        counts = dict(zip(column.labels or (), column.bars, strict=False))
        shares = [counts[value] / column.values if value in counts else None for value in values]
        data[column.split] = [None if each is None else float(f"{each:.4g}") for each in shares]
    encoding: JsonObject = {
        "y": _text("value", None, sort=None, axis={"labelLimit": 180}),
        "yOffset": {"field": "split", "type": "nominal", "sort": splits},
        "x": _number("share", None, axis={"format": "~%"}),
        "color": _text("split", None, sort=splits),
    }
    height = len(values) * max(22, 9 * len(splits))
    fold = [{"fold": splits, "as": ["split", "share"]}]
    spec = _chart(height, {"type": "bar", "tooltip": True}, encoding, transform=fold)
    more = len(labels) > len(values)
    return Chart(title, spec, data, f"The {len(values)} most frequent values." if more else "")


def transformed_chart(column: ColumnStatistics, splits: Sequence[ColumnStatistics]) -> Block:
    """Return the values of a transformed column in a split, in bins that all splits have."""
    title = f"Transformed, {column.split}"
    histogram = column.histogram
    if histogram is None:
        return Text(f"{title}: no finite value.", "quiet")
    if column.constant and column.mean is not None:
        return Text(f"{title}: every value is {short(column.mean, 6)}.")
    outside = [
        f"{count:,} {'value lies' if count == 1 else 'values lie'} {where} the chart"
        for count, where in ((histogram.below, "below"), (histogram.above, "above"))
        if count
    ]
    title += f" ({' and '.join(outside)})" if outside else ""
    known = [each.histogram for each in splits if each.histogram and each.histogram.observed]
    if not histogram.observed:
        return Text(f"{title}.", "quiet")
    first = min(each.first_bin for each in known)
    last = max(each.first_bin + len(each.observed) - 1 for each in known)
    wider = max(0, math.ceil(math.log2((last - first + 1) / _MOST_BINS)))
    counts = np.array([histogram.observed, histogram.imputed])
    filled = np.flatnonzero(counts.sum(axis=0))
    # The ends, too, so that all splits have one axis.
    bins = np.r_[first, last, histogram.first_bin + filled] >> wider
    bins, place = np.unique(bins, return_inverse=True)
    counts = [np.bincount(place[2:], each[filled], len(bins)) for each in counts]
    width = BIN_WIDTH * 2**wider
    data: dict[str, Sequence[JsonValue]] = {
        "low": rounded(bins * width),
        "high": rounded((bins + 1) * width),
        "observed": rounded(counts[0], 12),
    }
    if counts[1].any():
        data["imputed"] = rounded(counts[1], 12)
    return Chart(title, _overlaid(list(data)[2:], "rows", {}), data)


def _overlaid(series: Sequence[str], y: str, more: JsonObject) -> JsonObject:
    """Return bars between the fields low and high, one series of fields over the other."""
    axis = {"format": ".4~g", "labelOverlap": True, "tickCount": 6}
    encoding: JsonObject = {
        "x": _number("low", None, scale={"zero": False, "nice": False}, axis=axis),
        "x2": {"field": "high"},
        "y": _number(y, None, stack=None, **more),
        "y2": {"datum": 0},
        "color": _text("series", None, sort=list(series)),
        "tooltip": [
            _text("series", ""),
            _number("low", "from", format=".5~g"),
            _number("high", "to", format=".5~g"),
            _number(y, y, format=".2~%" if more else ",~g"),
        ],
    }
    mark = {"type": "bar", "opacity": 0.6 if len(series) > 1 else 1, "binSpacing": 0}
    fold = [{"fold": list(series), "as": ["series", y]}]
    return _chart(150, mark, encoding, transform=fold)
