"""The page of a run and that of all runs, compared with the records they are made from."""

from __future__ import annotations

import base64
import html.parser
import json
import math
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_records import SUMMARY_OF_A_RUN, failed, write

from pipeline.page import page as page_module
from pipeline.page.elements import (
    Cell,
    Chart,
    Column,
    Items,
    Row,
    Section,
    Table,
    Text,
    Tile,
    number_cell,
)
from pipeline.page.index import overlay, write_index
from pipeline.page.page import LARGEST_BYTES, inputs_of, write_page
from pipeline.page.render import in_script, render
from pipeline.page.sections import graph, reproduce, verdict
from pipeline.page.states import state_of
from pipeline.report.records import NodeRecord
from trainer_module.loop.callback import EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callbacks import TensorBoardScalars


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


def cells(section: Section, caption: str) -> list[list[str]]:
    (table,) = (b for b in section.blocks if isinstance(b, Table) and b.caption == caption)
    return [[cell.text for cell in row.cells] for row in table.rows]


def test_the_verdict_has_the_values_of_the_summary(tmp_path: Path) -> None:
    first = {name: {**each, "value": 2.75} for name, each in SUMMARY_OF_A_RUN["metrics"].items()}
    write(tmp_path, "20260130-100000", metrics=first)
    section = verdict.section_of(inputs_of(write(tmp_path, "20260131-100000")))
    (tiles,) = (block for block in section.blocks if hasattr(block, "tiles"))
    assert [(tile.name, tile.value, tile.state) for tile in tiles.tiles] == [
        ("mean absolute error", "2.5000", "good"),
        ("evaluated rows", "60", ""),
    ]
    assert tiles.tiles[0].note == "-0.25 since the last blessed model"
    assert cells(section, "Thresholds") == [["mean_absolute_error", "2.5", "≤ 3"]]
    assert cells(section, "Beside the baselines") == [
        ["this model", "2.5"],
        ["last blessed model (20260130-100000)", "2.75"],
        ["always 12", "4"],
    ]


def test_warnings_are_at_the_top_and_the_verdict_is_not_green(tmp_path: Path) -> None:
    leak = {"what": "column 'f7' alone explains 91.5% of the label", "fix": "Check it"}
    record = write(
        tmp_path,
        "20260131-100000",
        warnings=[{**leak, "column": "f7", "number": 0.915, "source": "Evaluator"}],
    )
    section = verdict.section_of(inputs_of(record))
    assert section.blocks[:2] == [
        Text("Every threshold holds, with 1 warning.", "warning"),
        Items([f"{leak['what']}. {leak['fix']}."], "warning"),
    ]
    assert state_of(record) == "warning"
    for page in (write_page(record), write_index(tmp_path)):
        assert "blessed with 1 warning" in page.read_text(encoding="utf-8")
    without = write(tmp_path, "20260131-110000")
    assert (state_of(without), without.shown_result) == ("good", "blessed")


def test_a_run_that_failed_says_where_and_why(tmp_path: Path) -> None:
    record = write(tmp_path, "20260131-100000", **failed("Transform", "column 'x' <b>is</b> gone"))
    section = verdict.section_of(inputs_of(record))
    assert section.blocks == [Text("Transform failed: column 'x' <b>is</b> gone", "bad")]
    text = write_page(record).read_text(encoding="utf-8")
    assert "&lt;b&gt;is" in text
    assert "<b>is" not in text
    assert "cannot be made" not in text


def test_a_run_that_was_interrupted_is_no_failure(tmp_path: Path) -> None:
    fields = failed("Trainer", "Interrupted in Trainer.")
    fields["run"]["result"] = "interrupted"
    section = verdict.section_of(inputs_of(write(tmp_path, "20260131-100000", **fields)))
    assert section.blocks == [Text("Interrupted in Trainer.", "warning")]


def test_nodes_and_what_changed(tmp_path: Path) -> None:
    write(tmp_path, "20260130-100000", settings={"training": {"epochs": 4}})
    run = inputs_of(write(tmp_path, "20260131-100000"))
    assert [line[:4] for line in cells(graph.section_of(run), "Nodes")] == [
        ["StatisticsGen", "run", "2.0", "150"],
        ["Trainer", "cached", "0.5", ""],
    ]
    (change,) = (b for b in reproduce.section_of(run).blocks if getattr(b, "is_difference", False))
    assert '-  "epochs": 4' in change.text
    assert '+  "epochs": 5' in change.text


def test_a_page_is_whole_html_without_any_outside_resource(tmp_path: Path) -> None:
    text = write_page(write(tmp_path, "20260131-100000")).read_text(encoding="utf-8")
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
    assert places
    assert max(places) < len(json.loads(scripts[-1]))
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
    assert len(details) == 2  # the first run has none
    assert "Trainer: no memory" in details[0]
    assert "training.epochs: 4 → 5" in details[1]


def test_curves_of_several_trainings_are_overlaid(tmp_path: Path) -> None:
    for name, losses in (("first", [0.5, 0.25]), ("second", [0.75, math.nan])):
        scalars = TensorBoardScalars(str(tmp_path / name))
        for step, loss in enumerate(losses, 1):
            scalars.on_loop(LoopProgress(step, 1, 2, step, 2, loss, 1.0, 1.0, 1, 1.0))
            scalars.on_epoch(EpochEnd(step, step, loss, {"auc": loss}, {}))
        scalars.on_end(FitResult("epochs", 2, 2, {}, {}, {}))
    charts = overlay({tmp_path / name: name for name in ("first", "second")})
    assert [chart.title for chart in charts] == ["loss on train rows", "auc on eval rows"]
    data = {key: list(values) for key, values in charts[0].data.items()}
    assert data["series"] == ["first", "first", "second", "second"]
    assert data["x"] == [1, 2, 1, 2]
    np.testing.assert_array_equal(data["y"], [0.5, 0.25, 0.75, math.nan])


def test_the_graph_has_a_line_to_each_node_that_no_longer_way_leads_to(tmp_path: Path) -> None:
    after = {"Gen": (), "Stats": ("Gen",), "Transform": ("Gen", "Stats"), "Trainer": ("Transform",)}
    nodes = [{"name": name, "result": "done", "seconds": 1.0, "rows": None} for name in after]
    record = write(tmp_path, "20260131-100000", nodes=nodes)
    records = {name: NodeRecord(name, after=names) for name, names in after.items()}
    section = graph.section_of(replace(inputs_of(record), nodes=records))
    (chart,) = (b for b in section.blocks if isinstance(b, Chart) and "reads" in b.title)
    lines = [
        name for name, text in zip(chart.data["node"], chart.data["text"], strict=True) if not text
    ]
    assert lines == ["Gen to Stats", "Stats to Transform", "Transform to Trainer"]
    levels = dict(zip(chart.data["node"], chart.data["y"], strict=True))
    assert [levels[name] for name in after] == [0, 1, 2, 3]
    assert [line[4] for line in cells(section, "Nodes")][2] == "Gen, Stats"
