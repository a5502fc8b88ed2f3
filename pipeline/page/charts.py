"""Vega-Lite specifications of the charts that several sections draw.

Colours, fonts and the background come from the theme in `templates/page.js`, so no specification
names a colour. https://vega.github.io/vega-lite/docs describes the fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.common.json_types import JsonObject


def lines(
    x: str, y: str, *, series: str | None = None, points: bool = False, log_y: bool = False
) -> JsonObject:
    """Return a line chart of the fields `x`, `y` and, for several lines, `series`.

    Args:
        x: Title of the horizontal axis; the field is `x`.
        y: Title of the vertical axis; the field is `y`.
        series: Title of the legend; None: one line, no field `series`.
        points: Also draw the points.
        log_y: Use a logarithmic vertical axis.
    """
    scale: JsonObject = {"type": "log"} if log_y else {"zero": False}
    encoding: JsonObject = {
        "x": {"field": "x", "type": "quantitative", "title": x, "scale": {"zero": False}},
        "y": {"field": "y", "type": "quantitative", "title": y, "scale": scale},
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


def bars(x: str, y: str, *, sort: Sequence[str] | str | None = None) -> JsonObject:
    """Return horizontal bars: a text in the field `y` and a number in the field `x`.

    Args:
        x: Title of the numbers.
        y: Title of the texts.
        sort: The order of the texts; None: as in the data.
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
                "sort": None if sort is None else sort,
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
        "x": {"field": "low", "type": "quantitative", "title": x, "scale": {"zero": False}},
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
