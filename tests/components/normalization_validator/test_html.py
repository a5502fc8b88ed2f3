"""report.html: well-formed, self-contained, complete."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from measured_columns import COLUMNS, RAW, measured_split

from components.normalization_validator.check import find_violations
from components.normalization_validator.html import render
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.outputs import holds_zero_one
from components.normalization_validator.report import ColumnStatistics, Report
from components.normalization_validator.statistics import with_shifts

SOURCES = {c.name: c.source or c.name for c in COLUMNS}
SHOWN = ("fare", '<b>&"quoted"\'', "flat", "never", "town")


@pytest.fixture(scope="module")
def report() -> Report:
    measured = measured_split("train", 2000, 0.0), measured_split("eval", 1500, 3.0)
    splits = tuple(with_shifts(each, measured[0]) for each in measured)
    limits = NormalizationLimits()
    violations = find_violations({s.split: s.columns for s in splits}, limits)
    found = {"splits": splits, "violations": tuple(violations), "sources": SOURCES, "raw": RAW}
    return Report(blessed=False, limits=limits, **found)


@pytest.fixture(scope="module")
def page(report) -> ElementTree.Element:
    text = render(report)
    # Written as XML too, so a strict parser can say that it is well-formed.
    script = re.search(r"<script>(.*)</script>", text, re.S)
    assert script is not None
    return ElementTree.fromstring(
        text.replace("<!DOCTYPE html>\n", "").replace(script.group(1), "")
    )


def test_a_column_of_many_outputs_is_written_in_linear_time(report, monkeypatch):
    """No output is compared with the others, which took 12 s for 4,000 of them."""
    wide, names = [], [f"town={i}" for i in range(200)]
    for split in report.splits:
        columns = tuple(split.columns[-1].model_copy(update={"name": name}) for name in names)
        wide.append(split.model_copy(update={"columns": columns}))
    compared = []
    monkeypatch.setattr(ColumnStatistics, "__eq__", lambda *both: compared.append(both))
    sources = dict.fromkeys(names, "town")
    render(report.model_copy(update={"splits": tuple(wide), "sources": sources}))
    assert not compared


def test_the_page_is_self_contained(report):
    text = render(report)
    assert not re.search(r"""https?:|//[a-z]|url\(|@import|<link|<img|<iframe|\bsrc=""", text)
    assert text == render(report)


def test_one_row_per_raw_column_and_a_line_per_split(page):
    rows = page.findall(".//tbody/tr")
    assert [r.find("th").attrib["data-v"] for r in rows] == list(SHOWN)  # pyright: ignore
    for row in rows:
        cells = row.findall("td")
        assert [line.text for line in cells[2].findall("div")] == ["train", "eval"]
        heads = page.findall(".//thead/tr/th")
        assert len(cells) + 1 == len(heads) == 12


def test_outputs_of_0_and_1_are_folded(page):
    rows = page.findall(".//tbody/tr")
    lists = [[li.text for li in row.findall(".//details/ul/li")] for row in rows]
    assert lists[1:4] == [[], [], []]
    (fare,), town = lists[0], lists[4]
    assert re.fullmatch(r"fare_missing: 1 in train 2\d\.\d\d%, eval 2\d\.\d\d%", fare)
    assert town == [
        f"{name}: 1 in train 50.00%, eval 50.00%" for name in ("town=Ulm", "town_other")
    ]


def test_the_raw_column_stands_beside_it(page):
    rows = page.findall(".//tbody/tr")
    titles = [[t.text for t in row.findall("td")[0].iter("title")] for row in rows]
    assert titles == [
        ["fare, train, raw: 10.00% missing; 1 to 3, highest bar 9"],
        *([[]] * 3),
        ["town, eval, raw: 50.00% missing; most frequent: 'Ulm' 3, '<Bonn>' 2"],
    ]


def test_violated_numbers_carry_their_sentence(page, report):
    marked = [div.attrib["title"] for div in page.findall(".//td/div[@class='bad']")]
    sentences = "\n".join(marked).split("\n")
    assert sorted(sentences) == sorted(v.message for v in report.violations)
    (listed,) = [each for each in page.iter("details") if "class" not in each.attrib]
    assert [li.text for li in listed.findall("ul/li")] == [v.message for v in report.violations]
    assert any("column 'never', split eval" in sentence for sentence in sentences)
    assert "normalisation: 3 limits violated" in [each.text for each in page.iter("span")]


def test_each_histogram_says_what_it_shows(page):
    titles = [t.text for row in page.iter("tr") for t in row.findall("td[2]//title")]
    assert len(titles) == 6  # `never` has no finite value
    assert titles[0] is not None
    # One outlier in two thousand does not squeeze the others into one bar.
    assert titles[0].startswith("fare, train: ")
    assert titles[0].endswith(" above")
    assert "bars 0.25 wide" in titles[0]


def test_a_report_without_a_violation_says_so(report):
    text = render(report.model_copy(update={"violations": (), "blessed": True}))
    assert "Every column is within its limits." in text
    assert ">normalisation: within limits<" in text
    assert "BLESSED" not in text
    assert 'class="bad"' not in text


def test_the_report_survives_json(report):
    assert Report.model_validate_json(report.to_json()) == report


def test_numbers_between_0_and_1_are_not_folded(report):
    """A `min_max` column has the same ends as an indicator."""
    columns = {column.name: column for column in report.splits[0].columns}
    ends = {"min": 0.0, "max": 1.0}
    assert not holds_zero_one(columns['<b>&"quoted"\''].model_copy(update=ends))
    assert holds_zero_one(columns["town_other"])
