"""Elements -> one HTML file with its styles, its program and Vega-Lite inside."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.common.json_types import JsonValue
from pipeline.page.elements import Chart, Section, Tile

SHOWN_ROWS = 50
"""Rows of a table that are shown at once; a button shows the others."""

_PACKED_ROWS = 50  # whose details are compressed together: opening one row unpacks these alone


def render(
    *,
    title: str,
    subtitle: str,
    badge: Tile,
    sections: Sequence[Section],
    links: Mapping[str, str],
) -> str:
    """Return the text of a page; `links` are texts with paths of other pages, relative to it."""
    charts = _Charts()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pipeline.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    # A text may continue in the next line behind an underscore.
    environment.filters["breakable"] = lambda name: Markup("_<wbr>").join(name.split("_"))
    environment.filters["packed"] = _packed
    environment.globals.update(add_chart=charts.add, in_script=in_script)
    environment.globals.update(shown_rows=SHOWN_ROWS, packed_rows=_PACKED_ROWS)
    template = environment.get_template("page.html.jinja")
    return template.render(
        title=title,
        subtitle=subtitle,
        badge=badge,
        sections=sections,
        links=links,
        specs=charts.specs,  # filled while the sections are written
        vega=_packed([_vega()]) if _has_chart(sections) else "",
    )


class _Charts:
    """The specifications of a page, each once."""

    def __init__(self) -> None:
        self.specs: list[dict[str, JsonValue]] = []
        self._places: dict[str, int] = {}

    def add(self, chart: Chart) -> int:
        """Return the place of the chart's specification."""
        key = json.dumps(chart.spec, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.specs)
            self.specs.append(dict(chart.spec))
        return self._places[key]


def _finite(value: Any) -> JsonValue:
    """Return a JSON value in which NaN and infinities are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def in_script(value: Any) -> Markup:
    """Return a value as JSON that can stand in a script element; NaN and infinities are null."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _packed(texts: Sequence[str]) -> str:
    """Return texts as JSON, compressed (zlib) and in base64: a tenth of a wide table's details."""
    text = json.dumps([str(each) for each in texts], ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _has_chart(blocks: Sequence[Any]) -> bool:
    for block in blocks:
        inner = [*getattr(block, "blocks", ())]
        inner += [each for row in getattr(block, "rows", ()) for each in row.details]
        if isinstance(block, Chart) or _has_chart(inner):
            return True
    return False


def _vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets `window.vegaEmbed`."""
    import vl_convert

    return vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]  has a default
