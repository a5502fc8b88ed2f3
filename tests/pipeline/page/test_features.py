"""The section Features, compared with the report of NormalizationValidator and the layout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
import tensorflow_data_validation as tfdv
from measured_columns import COLUMNS, RAW, measured, measured_split
from run_inputs import blocks_of, page_run, texts_of
from run_records import failed

from components.normalization_validator.check import find_violations
from components.normalization_validator.columns import Column
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import (
    RawColumn,
    Report,
    SplitStatistics,
)
from pipeline.page.elements import Chart, Group, Items, Section, Text, Tile, Tiles
from pipeline.page.features import report_blocks, section_of
from pipeline.page.page import LARGEST_BYTES
from pipeline.page.render import render
from pipeline.report.tables import Table

REPORT = ("NormalizationValidator", "report")
GRAPH = ("Transform", "transform_graph")


def report_of(splits: list[SplitStatistics], raw: tuple[RawColumn, ...], sources: dict) -> Report:
    limits = NormalizationLimits()
    violations = find_violations({s.split: s.columns for s in splits}, limits)
    return Report(
        blessed=not violations,
        limits=limits,
        splits=tuple(splits),
        violations=tuple(violations),
        sources=sources,
        raw=raw,
    )


@pytest.fixture(scope="module")
def report() -> Report:
    found = [measured_split("train", 2000, 0.0), measured_split("eval", 1500, 3.0)]
    return report_of(found, RAW, {c.name: c.source or c.name for c in COLUMNS})


@pytest.fixture(scope="module")
def table(report: Report) -> Table:
    return next(block for block in report_blocks(report, {}) if isinstance(block, Table))


def details(table: Table, name: str) -> list:
    return list(next(row.details for row in table.rows if row.cells[0].text == name))


def test_a_row_per_column_and_the_numbers_of_the_report(report: Report, table: Table) -> None:
    rows = {row.cells[0].text: row for row in table.rows}
    names = ["fare", "fare_missing", COLUMNS[1].name, "flat", "never", "town=Ulm", "town_other"]
    assert list(rows) == names  # the outputs of a raw column are one after the other
    train, evaluated = (report.split(name).columns for name in ("train", "eval"))
    names = [column.name for column in table.columns]
    fare = dict(zip(names, rows["fare"].cells, strict=True))
    for name in ("mean", "std", "min", "max"):
        assert fare[name].value == getattr(train[0], name)
    assert fare["imputed"].value == train[0].imputed_share
    steps = {name: (row.cells[1].text, row.cells[2].text) for name, row in rows.items()}
    assert steps["fare"] == ("", "z_score")
    assert steps["fare_missing"] == ("fare", "missing_indicator")
    assert steps["flat"] == ("", "z_score, constant")
    (splits,) = (t for t in blocks_of(rows["fare"].details, Table) if "split" in t.caption)
    assert texts_of(splits)["values"] == {
        "statistic": "values",
        "train": "2,000",
        "eval": "1,500",
    }
    (mean,) = (row for row in splits.rows if row.cells[0].text == "mean")
    assert [cell.value for cell in mean.cells[1:]] == [train[0].mean, evaluated[0].mean]


def test_histograms_have_every_value_of_the_report(report: Report, table: Table) -> None:
    raw, *transformed = blocks_of(details(table, "fare"), Chart)
    assert raw.data == {"low": [1, 2], "high": [2, 3], "train": [1, 0]}
    for chart, split in zip(transformed, report.splits, strict=True):
        column = split.columns[0]
        assert sum(chart.data["imputed"]) == column.imputed
        assert chart.title.startswith(f"Transformed, {split.split} (")
        outside = sum(map(int, re.findall(r"(\d+) values? lie", chart.title)))
        assert sum(chart.data["observed"]) == column.count - outside
    first, second = transformed
    assert first.spec == second.spec  # one copy in the page
    assert (first.data["low"][0], first.data["high"][-1]) == (
        second.data["low"][0],
        second.data["high"][-1],
    )
    town, *_ = blocks_of(details(table, "town=Ulm"), Chart)
    assert town.data == {"value": ["Ulm", "<Bonn>"], "eval": [0.6, 0.4]}
    assert (
        blocks_of(details(table, "flat"), Text)[0].text == "Transformed, train: every value is 0."
    )
    assert "no finite value" in blocks_of(details(table, "never"), Text)[0].text


def test_violated_limits_are_listed_and_marked(report: Report, table: Table) -> None:
    messages = [violation.message for violation in report.violations]
    (listed,) = blocks_of(report_blocks(report, {}), Items)
    assert (listed.texts, listed.state) == (messages, "bad")
    marked = [row.cells[-1].note for row in table.rows if row.cells[-1].state == "bad"]
    assert sorted("\n".join(marked).split("\n")) == sorted(messages)
    limits = {row.cells[0].text: row.cells[-1].text for row in table.rows}
    assert "non_finite_share in train" in limits["never"]
    assert limits["flat"] == ""
    blessed = report.model_copy(update={"violations": (), "blessed": True})
    texts = [text.text for text in blocks_of(report_blocks(blessed, {}), Text)]
    assert texts == ["Every column is within its limits."]
    many = report.model_copy(update={"violations": report.violations * 20})
    (group,) = blocks_of(report_blocks(many, {}), Group)
    assert group.title == f"{20 * len(messages) - 10} more violated limits"


def page_bytes(report: Report) -> int:
    section = Section("features", "Features", report_blocks(report, {}))
    text = render(title="", subtitle="", badge=Tile("", ""), sections=[section], links={})
    return len(text.encode())


def test_a_thousand_columns_fit_into_the_page(report: Report) -> None:
    """From 200 columns, because bytes are in proportion to columns."""
    names = [f"sensor_{i:04d}" for i in range(200)]
    columns = tuple(Column(name, "z_score", i, source=name) for i, name in enumerate(names))
    rng = np.random.default_rng(0)
    found, raw = [], []
    for split, rows in (("train", 600), ("eval", 300)):
        x = rng.lognormal(size=[rows, len(names)])
        found.append(measured(split, x, x < 0.3, columns))
        bars = rng.random([len(names), 10])
        raw += [
            RawColumn(
                name=name, split=split, values=rows, missing=0, bars=tuple(b), low=0.01, high=30.7
            )
            for name, b in zip(names, bars.tolist(), strict=True)
        ]
    wide = page_bytes(report_of(found, tuple(raw), {name: name for name in names}))
    few = page_bytes(report)
    others = 0.4 * LARGEST_BYTES  # the other sections need room
    assert few + 5 * (wide - few) < LARGEST_BYTES - others


def write_graph(folder: Path) -> Path:
    columns = [
        {"name": "area", "source": "area", "group": "sizes", "kind": "z_score",
         "output": "packed_float", "position": 0},
        {"name": "city", "source": "city", "group": "names", "kind": "vocabulary",
         "output": "packed_int", "position": 0, "vocabulary": "city", "extra_ids": 2},
    ]  # fmt: skip
    assets = folder / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    layout = {"format": "tfx-largebatch/feature_layout", "version": 1, "columns": columns}
    (assets / "feature_layout").write_text(json.dumps(layout))
    (assets / "city").write_text("Oslo\nUlm\n")
    return folder


def test_without_a_report_it_says_so(tmp_path: Path) -> None:
    run = page_run(tmp_path / "1", {GRAPH: write_graph(tmp_path / "graph")})
    texts = [text.text for text in blocks_of(section_of(run).blocks, Text)]
    assert texts[0] == "NormalizationValidator has not finished in this run: no histograms."
    assert texts[1].startswith("The steps of the columns are not known: ")


def test_columns_that_are_no_input_are_named(tmp_path: Path) -> None:
    split = tmp_path / "statistics" / "Split-train"
    split.mkdir(parents=True)
    rows = pandas.DataFrame({name: ["a", "b"] for name in ("area", "town", "city", "price")})
    found = tfdv.generate_statistics_from_dataframe(rows)
    (split / "FeatureStats.pb").write_bytes(found.SerializeToString())
    artifacts = {
        GRAPH: write_graph(tmp_path / "graph"),
        ("StatisticsGen", "statistics"): split.parent,
    }
    (group,) = blocks_of(section_of(page_run(tmp_path / "out", artifacts)).blocks, Group)
    assert group.title == "Raw columns that are no model input: 2"
    assert group.blocks == [Text("price, town")]


def test_the_report_of_a_validator_that_failed_is_shown(tmp_path: Path, report: Report) -> None:
    kept = tmp_path / "report" / "7-failed"
    kept.mkdir(parents=True)
    (kept / "report.json").write_text(report.to_json())
    message = f"The transformed examples are not normalised.\nReport: {kept / 'report.json'}\nFix"
    run = page_run(tmp_path / "out", {}, **failed("NormalizationValidator", message))
    (tiles,) = blocks_of(section_of(run).blocks, Tiles)
    assert tiles.tiles[-1].value == str(len(report.violations))


def test_a_report_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.json").write_text("{}")
    blocks = section_of(page_run(tmp_path / "out", {REPORT: folder})).blocks
    assert f"{folder / 'report.json'} cannot be read" in blocks_of(blocks, Text)[0].text
