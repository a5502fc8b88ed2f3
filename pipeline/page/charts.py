"""Vega-Lite specifications of the charts that several sections draw.

Colours, fonts and the background come from the theme in `templates/page.js`, so no specification
names a colour. https://vega.github.io/vega-lite/docs describes the fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.common.json_types import JsonObject, JsonValue


def lines(x: str, y: str, *, series: str | None = None, points: bool = False) -> JsonObject:
    """Return a line chart of the fields `x`, `y` and, for several lines, `series`.

    Args:
        x: Title of the horizontal axis; the field is `x`.
        y: Title of the vertical axis; the field is `y`.
        series: Title of the legend; None: one line, no field `series`.
        points: Also draw the points.
    """
    encoding: JsonObject = {
        "x": {"field": "x", "type": "quantitative", "title": x, "scale": {"zero": False}},
        "y": {"field": "y", "type": "quantitative", "title": y, "scale": {"zero": False}},
        "tooltip": [
            {"field": "x", "type": "quantitative", "title": x},
            {"field": "y", "type": "quantitative", "title": y, "format": ".5~g"},
        ],
    }
    if series is not None:
        encoding["color"] = {"field": "series", "type": "nominal", "title": series}
        encoding["strokeDash"] = {"field": "series", "type": "nominal", "title": series}
    return {
        "width": "container",
        "height": 220,
        "mark": {"type": "line", "point": points, "tooltip": True},
        "encoding": encoding,
    }


def bars(x: str, y: str) -> JsonObject:
    """Return horizontal bars, as in the data: a text in the field `y`, a number in the field `x`.

    Args:
        x: Title of the numbers.
        y: Title of the texts.
    """
    return {
        "width": "container",
        "height": {"step": 20},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {
                "field": "y",
                "type": "nominal",
                "title": y,
                "sort": None,
                "axis": {"labelLimit": 240},
            },
            "x": {"field": "x", "type": "quantitative", "title": x},
        },
    }


def histogram(x: str, y: str = "rows", *, series: str | None = None) -> JsonObject:
    """Return a histogram: intervals from the field `low` to `high`, counts in the field `y`.

    Args:
        x: Title of the values.
        y: Title of the counts.
        series: Title of the legend; None: no field `series`. Several series overlap.
    """
    encoding: JsonObject = {
        "x": {
            "field": "low",
            "bin": "binned",  # else the bars would be horizontal
            "type": "quantitative",
            "title": x,
            "scale": {"zero": False},
        },
        "x2": {"field": "high"},
        "y": {"field": "y", "type": "quantitative", "title": y, "stack": None},
        "tooltip": [
            {"field": "low", "type": "quantitative", "title": "from", "format": ".5~g"},
            {"field": "high", "type": "quantitative", "title": "to", "format": ".5~g"},
            {"field": "y", "type": "quantitative", "title": y, "format": ",~g"},
        ],
    }
    if series is not None:
        encoding["color"] = {"field": "series", "type": "nominal", "title": series}
    return {
        "width": "container",
        "height": 160,
        "mark": {"type": "bar", "opacity": 0.65 if series else 1, "binSpacing": 0},
        "encoding": encoding,
    }


def threshold_curve(x: str, y: str, *, diagonal: bool = False) -> JsonObject:
    """Return a curve of the fields `x` and `y` from 0 to 1, with the point at a threshold marked.

    Args:
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        diagonal: Also draw the line from (0, 0) to (1, 1).

    Each point has its threshold in the field `t`; the parameter `threshold` selects one.
    """
    unit: JsonObject = {"domain": [0, 1], "nice": False}
    encoding: JsonObject = {
        "x": {"field": "x", "type": "quantitative", "title": x, "scale": unit},
        "y": {"field": "y", "type": "quantitative", "title": y, "scale": unit},
    }
    tooltip: JsonValue = [
        {"field": "t", "type": "quantitative", "title": "threshold", "format": ".6~g"},
        {"field": "x", "type": "quantitative", "title": x, "format": ".4f"},
        {"field": "y", "type": "quantitative", "title": y, "format": ".4f"},
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
    if diagonal:
        layers.insert(0, _DIAGONAL)
    return {
        "width": "container",
        "height": 260,
        "params": [{"name": "threshold", "value": 0.5}],
        "layer": layers,
    }


_DIAGONAL: JsonObject = {
    "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
    "mark": {"type": "line", "strokeDash": [4, 4], "opacity": 0.5},
    "encoding": {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
    },
}


def calibration(x: str, y: str, counted: str) -> JsonObject:
    """Return points (`x`, `y`) from 0 to 1 beside the diagonal; `rows` of each is its size.

    Args:
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        counted: Unit of the field `rows`.
    """
    unit: JsonObject = {"domain": [0, 1], "nice": False}
    encoding: JsonObject = {
        "x": {"field": "x", "type": "quantitative", "title": x, "scale": unit},
        "y": {"field": "y", "type": "quantitative", "title": y, "scale": unit},
    }
    sized: JsonObject = {
        **encoding,
        "size": {"field": "rows", "type": "quantitative", "title": counted, "legend": None},
        "tooltip": [
            {"field": "x", "type": "quantitative", "title": x, "format": ".4f"},
            {"field": "y", "type": "quantitative", "title": y, "format": ".4f"},
            {"field": "rows", "type": "quantitative", "title": counted, "format": ",~g"},
        ],
    }
    return {
        "width": "container",
        "height": 260,
        "layer": [
            _DIAGONAL,
            {"mark": "line", "encoding": encoding},
            {"mark": {"type": "point", "filled": True, "opacity": 0.9}, "encoding": sized},
        ],
    }


def heat_map(
    x: str, y: str, count: str, *, bins: bool, order: Sequence[str] | None = None
) -> JsonObject:
    """Return cells whose colour is the field `n`.

    Args:
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        count: Title of the colours.
        bins: Cells lie between the fields `x0` and `x1`, `y0` and `y1`; else `x` and `y` are texts.
        order: The order of the texts on both axes.
    """
    color: JsonObject = {
        "field": "n",
        "type": "quantitative",
        "title": count,
        "scale": {"type": "symlog"},
    }
    number: JsonObject = {"type": "quantitative", "scale": {"zero": False, "nice": False}}
    if bins:
        encoding: JsonObject = {
            "x": {"field": "x0", "title": x, **number},
            "x2": {"field": "x1"},
            "y": {"field": "y0", "title": y, **number},
            "y2": {"field": "y1"},
        }
        shown = [("x0", f"{x} from"), ("x1", "to"), ("y0", f"{y} from"), ("y1", "to")]
    else:
        text: JsonObject = {"type": "nominal", "sort": list(order or ())}
        encoding = {
            "x": {"field": "x", "title": x, **text},
            "y": {"field": "y", "title": y, **text},
        }
        shown = [("x", x), ("y", y)]
    kind = "quantitative" if bins else "nominal"
    encoding["tooltip"] = [
        *({"field": name, "type": kind, "title": title} for name, title in shown),
        {"field": "n", "type": "quantitative", "title": count, "format": ",~g"},
    ]
    return {
        "width": "container",
        "height": 300 if bins else {"step": 26},
        "mark": {"type": "rect", "tooltip": True},
        "encoding": {**encoding, "color": color},
    }


def dependence(
    y: str,
    *,
    is_number: bool,
    series: str | None = None,
    scale: Sequence[float] | None = None,
) -> JsonObject:
    """Return a line over numbers, or a point for each text, of the fields `x` and `y`.

    Args:
        y: Title of the prediction.
        is_number: Whether `x` is a number; else texts are listed from top to bottom.
        series: Title of the legend; None: no field `series`.
        scale: Ends of the axis of the prediction, to compare charts; None: those of the data.
    """
    ends: JsonObject = {"zero": False} if scale is None else {"domain": list(scale), "nice": True}
    prediction: JsonObject = {"field": "y", "type": "quantitative", "title": y, "scale": ends}
    encoding: JsonObject
    if is_number:
        x: JsonObject = {"field": "x", "type": "quantitative", "title": None}
        encoding = {"x": {**x, "scale": {"zero": False, "nice": False}}, "y": prediction}
    else:
        axis: JsonObject = {"labelLimit": 160, "grid": True}
        texts: JsonObject = {"field": "x", "type": "nominal", "title": None, "sort": None}
        encoding = {"y": {**texts, "axis": axis}, "x": prediction}
    if series is not None:
        encoding["color"] = {"field": "series", "type": "nominal", "title": series}
    point: JsonObject = {"type": "point", "filled": True, "size": 60, "tooltip": True}
    return {
        "width": "container",
        "height": 150 if is_number else {"step": 18},
        "mark": {"type": "line", "point": True, "tooltip": True} if is_number else point,
        "encoding": encoding,
    }
