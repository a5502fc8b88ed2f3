"""The page of a run and that of all runs, compared with the records they are made from."""

from __future__ import annotations

import base64
import html.parser
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from run_inputs import blocks_of, result_of
from run_records import failed, write

from components.input_gradients.summary import SUMMARY_JSON, AttributionSummary
from pipeline.page import page as page_module
from pipeline.page.elements import Chart, Section, Text, Tile
from pipeline.page.page import LARGEST_BYTES, write_index, write_page
from pipeline.page.render import in_script, render
from pipeline.report.tables import Cell, Column, Row, Table, number_cell


class _Page(html.parser.HTMLParser):
    """The texts, the links and the unclosed elements of a page."""

    VOID = frozenset({"meta", "link", "input", "wbr", "br"})

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


def unpacked(text: str) -> list[str]:
    """Returns the details of all rows of a page's tables."""
    packed = re.findall(r'class="packed">(.*?)</script>', text)
    return [row for each in packed for row in json.loads(zlib.decompress(base64.b64decode(each)))]


def test_the_run_is_the_last_section(tmp_path: Path) -> None:
    write(tmp_path, "20260130-100000", settings={"training": {"epochs": 4}})
    record = write(tmp_path, "20260131-100000")
    folder = tmp_path / "artifacts" / "Trainer" / "model" / "8"
    folder.mkdir(parents=True)
    result = result_of(record.config, {("Trainer", "model"): folder})
    assert page_module.SECTIONS[-1][2] is page_module.run_section
    section = page_module.run_section(page_module.page_run(record, result))
    (table,) = blocks_of(section.blocks, Table, "Nodes")
    nodes = [[cell.text for cell in row.cells] for row in table.rows]
    assert nodes == [
        ["StatisticsGen", "run", "2.0 s", ""],
        ["Trainer", "cached", "0.5 s", "Trainer/model/8"],
    ]
    assert table.rows[1].cells[3].link == "../../artifacts/Trainer/model/8"
    (changed,) = blocks_of(section.blocks, Table, "Changed since the run before")
    assert [[c.text for c in r.cells] for r in changed.rows] == [["training.epochs", "4", "5"]]


def test_a_page_shows_why_a_run_failed_or_is_not_green(tmp_path: Path) -> None:
    record = write(tmp_path, "20260131-100000", **failed("Transform", "column 'x' <b>is</b> gone"))
    text = write_page(record).read_text(encoding="utf-8")
    assert "&lt;b&gt;is" in text
    assert "<b>is" not in text
    assert "cannot be made" not in text
    warned = write(tmp_path, "20260131-110000", warnings=[{"what": "x leaks", "fix": "Check it"}])
    assert warned.state == "warning"
    for page in (write_page(warned), write_index(tmp_path)):
        assert "blessed with 1 warning" in page.read_text(encoding="utf-8")
    without = write(tmp_path, "20260131-120000")
    assert (without.state, without.shown_result) == ("good", "blessed")


def test_a_page_is_whole_html_without_any_outside_resource(tmp_path: Path) -> None:
    summary = AttributionSummary(
        split="eval", rows=60, steps=8, mean_prediction=2.5, mean_baseline_prediction=0.0,
        mean_absolute_change=0.0, mean_absolute_completeness_error=0.0,
        mean_absolute={"area": 1.0}, mean={"area": -1.0},
    )  # fmt: skip
    (tmp_path / SUMMARY_JSON).write_text(summary.model_dump_json())
    record = write(tmp_path / "out", "20260131-100000")
    result = result_of(record.config, {("InputGradients", "attributions"): tmp_path})
    text = write_page(record, result).read_text(encoding="utf-8")
    found = _Page(text)
    assert found.open == []
    assert len(text.encode()) < LARGEST_BYTES
    for tag, attributes in found.attributes:
        target = attributes.get("src") or attributes.get("href") or ""
        assert "://" not in target, (tag, target)
    # JSON in scripts stays JSON, and each chart finds its specification.
    scripts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert all(json.loads(script) is not None for script in scripts)
    places = [int(a["data-spec"]) for _, a in found.attributes if a.get("data-spec")]
    assert places == [0]
    assert len(json.loads(scripts[-1])) == 1
    assert "cannot be made" not in text


def test_a_section_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Any) -> Section:
        raise ValueError("statistics.pb is cut off")

    sections = (("data", "Data", broken), *page_module.SECTIONS)
    monkeypatch.setattr(page_module, "SECTIONS", sections)
    text = write_page(write(tmp_path, "20260131-100000")).read_text(encoding="utf-8")
    assert "This section cannot be made: ValueError: statistics.pb is cut off" in text
    assert "mean absolute error" in text


def test_names_from_the_data_cannot_leave_their_place() -> None:
    name = "</script><script>alert(1)</script>\u2028"
    chart = Chart(name, {"mark": "bar"}, {name: [1.0, math.nan]}, name)
    table = Table(name, [Column(name)], [Row([Cell(name, note=name)], [chart])], filter="rows")
    text = render(
        title=name,
        subtitle=name,
        badge=Tile("result", "blessed"),
        sections=[Section("one", name, [chart, table, Text(name)])],
        links={},
    )
    details = unpacked(text)
    assert len(details) == 1
    for part in (text, *details):
        assert "<script>alert" not in part
        assert _Page(part).open == []


def test_numbers_that_json_lacks_are_null() -> None:
    assert in_script({"x": [1.5, math.nan, math.inf], "y": ("a", None)}) == (
        '{"x":[1.5,null,null],"y":["a",null]}'
    )
    assert number_cell(math.nan) == number_cell(None) == Cell("undefined", state="quiet")


def test_the_page_of_all_runs(tmp_path: Path) -> None:
    write(tmp_path, "20260130-100000", settings={"training": {"epochs": 4}})
    write(tmp_path, "20260131-100000")
    write(tmp_path, "20260131-110000", **failed("Trainer", "no memory"))
    (tmp_path / "runs" / "20260131-120000").mkdir()  # a run that was killed wrote no record
    text = write_index(tmp_path).read_text(encoding="utf-8")
    found = _Page(text)
    links = [
        a["href"] for tag, a in found.attributes if tag == "a" and "runs/" in (a["href"] or "")
    ]
    names = ["20260131-110000", "20260131-100000", "20260130-100000"]
    assert links == [f"runs/{names[0]}/report.html", *(f"runs/{n}/report.html" for n in names)]
    shown = " ".join(" ".join(found.texts).split())
    assert "training.epochs: 4 → 5" in shown
    details = unpacked(text)
    assert len(details) == 1  # of the run that failed
    assert "Trainer: no memory" in details[0]
