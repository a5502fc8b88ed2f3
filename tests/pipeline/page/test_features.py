"""The section Features, compared with the report of NormalizationValidator and the layout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
from measured_columns import COLUMNS, RAW, measured, measured_split
from run_inputs import blocks_of, inputs, texts_of
from run_records import failed

from components.normalization_validator.check import find_violations
from components.normalization_validator.columns import Column
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    Report,
    SplitStatistics,
)
from pipeline.cli.cli import main
from pipeline.page.elements import Chart, Group, Items, Section, Table, Text, Tile, Tiles
from pipeline.page.page import LARGEST_BYTES
from pipeline.page.render import render
from pipeline.page.report_columns import holds_zero_one
from pipeline.page.sections.features import report_blocks, section_of

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
    return next(block for block in report_blocks(report) if isinstance(block, Table))


def details(table: Table, name: str) -> list:
    return list(next(row.details for row in table.rows if row.cells[0].text == name))


def test_a_row_per_column_and_the_numbers_of_the_report(report: Report, table: Table) -> None:
    rows = {row.cells[0].text: row for row in table.rows}
    assert list(rows) == ["fare", COLUMNS[1].name, "flat", "never", "town"]
    train, evaluated = (report.split(name).columns for name in ("train", "eval"))
    names = [column.name for column in table.columns]
    fare = dict(zip(names, rows["fare"].cells, strict=True))
    for name in ("mean", "std", "min", "max"):
        assert fare[name].value == getattr(train[0], name)
    assert fare["imputed"].value == train[0].imputed_share
    assert fare["step"].text == "z_score and 1 of 0 and 1"
    assert rows["flat"].cells[2].text == "z_score, constant"
    assert rows["town"].cells[2].text == "one_hot: 2 columns of 0 and 1"
    (splits,) = (t for t in blocks_of(rows["fare"].details, Table) if "split" in t.caption)
    assert texts_of(splits)["values"] == {
        "statistic": "values",
        "train": "2,000",
        "eval": "1,500",
    }
    (mean,) = (row for row in splits.rows if row.cells[0].text == "mean")
    assert [cell.value for cell in mean.cells[1:]] == [train[0].mean, evaluated[0].mean]


def test_outputs_of_0_and_1_are_folded(table: Table) -> None:
    (town,) = blocks_of(details(table, "town"), Table)
    assert texts_of(town) == {
        name: {"column of 0 and 1": name, "1 in train": "50.00%", "1 in eval": "50.00%"}
        for name in ("town=Ulm", "town_other")
    }
    fare = blocks_of(details(table, "fare"), Table)[-1]
    assert list(texts_of(fare)) == ["fare_missing"]


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
    (town,) = blocks_of(details(table, "town"), Chart)
    assert town.data == {"value": ["Ulm", "<Bonn>"], "eval": [0.6, 0.4]}
    assert (
        blocks_of(details(table, "flat"), Text)[0].text == "Transformed, train: every value is 0."
    )
    assert "no finite value" in blocks_of(details(table, "never"), Text)[0].text


def test_violated_limits_are_listed_and_marked(report: Report, table: Table) -> None:
    messages = [violation.message for violation in report.violations]
    (listed,) = blocks_of(report_blocks(report), Items)
    assert (listed.texts, listed.state) == (messages, "bad")
    marked = []
    for row in table.rows:
        for inner in blocks_of(row.details, Table):
            for cell in (cell for line in inner.rows for cell in line.cells):
                marked += cell.note.split("\n") if cell.state == "bad" else []
    assert sorted(marked) == sorted(messages)
    limits = {row.cells[0].text: row.cells[-1].text for row in table.rows}
    assert "non_finite_share in train" in limits["never"]
    assert limits["flat"] == ""
    blessed = report.model_copy(update={"violations": (), "blessed": True})
    texts = [text.text for text in blocks_of(report_blocks(blessed), Text)]
    assert texts == ["Every column is within its limits."]
    many = report.model_copy(update={"violations": report.violations * 20})
    (group,) = blocks_of(report_blocks(many), Group)
    assert group.title == f"{20 * len(messages) - 10} more violated limits"


def page_bytes(report: Report) -> int:
    section = Section("features", "Features", report_blocks(report))
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


def test_without_a_report_the_layout_is_shown(tmp_path: Path) -> None:
    run = inputs(tmp_path / "out", {GRAPH: write_graph(tmp_path / "graph")})
    blocks = section_of(run).blocks
    texts = [text.text for text in blocks_of(blocks, Text)]
    assert texts[0] == "NormalizationValidator has not finished in this run: no histograms."
    assert texts[1].startswith("The steps of the columns are not known: ")
    (table,) = blocks_of(blocks, Table)
    assert texts_of(table)["city"]["step"] == "vocabulary"
    (text,) = blocks_of(details(table, "city"), Text)
    assert text.text == (
        "Ids from 0 to 3: 2 values of the vocabulary and 2 more for unknown and missing values. "
        "In order: 'Oslo', 'Ulm'."
    )


def left_out(folder: Path, columns: dict[str, list]) -> dict[str, str]:
    """Returns raw column -> the reason on the page of a run on these columns, whose label is price.

    Features of the run are area and city.
    """
    import tensorflow_data_validation as tfdv

    split = folder / "statistics" / "Split-train"
    split.mkdir(parents=True)
    found = tfdv.generate_statistics_from_dataframe(pandas.DataFrame(columns))
    (split / "FeatureStats.pb").write_bytes(found.SerializeToString())
    graph = write_graph(folder / "graph")
    artifacts = {GRAPH: graph, ("StatisticsGen", "statistics"): split.parent}
    (group,) = blocks_of(section_of(inputs(folder / "out", artifacts)).blocks, Group)
    (table,) = group.blocks
    assert group.title == f"Left out: {len(table.rows)} raw columns"
    return {row.cells[0].text: row.cells[1].text for row in table.rows}


def test_columns_that_are_no_input_say_what_they_hold(tmp_path: Path) -> None:
    n = 80
    columns = {
        "area": [1.0] * n,
        "city": ["a"] * n,
        "price": [0, 1] * (n // 2),
        "town": [None if i == 7 else f"town {i % 4}" for i in range(n)],
        "row_id": list(range(1, n + 1)),
        "size": [None, *np.linspace(-0.5, 2.5, n - 1)],
        "empty": [None] * n,
        "review": [f"the {w} food was {w} and we will come back" for w in ("good", "bad")]
        * (n // 2),
    }
    start = "no feature of the configuration uses it: "
    assert left_out(tmp_path, columns) == {
        "price": "the label",
        "town": f"{start}4 different texts; 1 of {n} missing",
        "row_id": f"{start}whole numbers from 1 to {n}",
        "empty": "no row has a value",
        "size": f"{start}numbers from -0.5 to 2.5; 1 of {n} missing",
        "review": f"{start}2 different texts",
    }


def test_the_report_of_a_validator_that_failed_is_shown(tmp_path: Path, report: Report) -> None:
    kept = tmp_path / "report" / "7-failed"
    kept.mkdir(parents=True)
    (kept / "report.json").write_text(report.to_json())
    message = f"The transformed examples are not normalised.\nReport: {kept / 'report.json'}\nFix"
    run = inputs(tmp_path / "out", {}, **failed("NormalizationValidator", message))
    (tiles,) = blocks_of(section_of(run).blocks, Tiles)
    assert tiles.tiles[-1].value == str(len(report.violations))


@pytest.mark.parametrize("content", ["", "{}", '{"format": "other"}'])
def test_a_report_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.json").write_text(content)
    blocks = section_of(inputs(tmp_path / "out", {REPORT: folder})).blocks
    assert f"{folder / 'report.json'} cannot be read" in blocks_of(blocks, Text)[0].text


@pytest.mark.parametrize("named", ["report.json", "."])
def test_a_report_alone_becomes_a_page(
    tmp_path: Path,
    report: Report,
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of a pipeline without a record of runs. The artifact stays as its node wrote it."""
    artifact = tmp_path / "report" / "7"
    artifact.mkdir(parents=True)
    (artifact / "report.json").write_text(report.to_json())
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(artifact / named)]) == 0
    page = tmp_path / "normalization.html"
    assert capsys.readouterr().out.strip() == page.name
    assert [each.name for each in artifact.iterdir()] == ["report.json"]
    text = page.read_text(encoding="utf-8")
    count = len(report.violations)
    assert count > 1
    assert f"<title>Normalization: {count} limits violated</title>" in text
    assert "column &#39;never&#39;, split eval" in text
    assert all(name in text for name in ("fare", "flat", "town"))


def test_a_report_alone_that_is_none_is_refused(
    tmp_path: Path,
    report: Report,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "report.json"
    file.write_text("{}")
    assert main(["report", str(file)]) == 2
    said = " ".join("".join(capsys.readouterr()).split())
    assert f"{file} cannot be read (ValidationError). Name the report.json" in said
    file.write_text(report.to_json())
    assert main(["report", str(file), "--run", "20260131"]) == 2
    assert "--run=20260131" in "".join(capsys.readouterr())
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_numbers_between_0_and_1_are_not_folded(report: Report) -> None:
    """A `min_max` column has the same ends as an indicator."""
    columns = {column.name: column for column in report.splits[0].columns}
    ends = {"min": 0.0, "max": 1.0}
    assert not holds_zero_one(columns[COLUMNS[1].name].model_copy(update=ends))
    assert holds_zero_one(columns["town_other"])


def test_a_column_of_many_outputs_takes_linear_time(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No output is compared with the others, which took 12 s for 4,000 of them."""
    wide, names = [], [f"town={i}" for i in range(200)]
    for split in report.splits:
        columns = tuple(split.columns[-1].model_copy(update={"name": name}) for name in names)
        wide.append(split.model_copy(update={"columns": columns}))
    compared = []
    monkeypatch.setattr(ColumnStatistics, "__eq__", lambda *both: compared.append(both))
    sources = dict.fromkeys(names, "town")
    report_blocks(report.model_copy(update={"splits": tuple(wide), "sources": sources}))
    assert not compared
