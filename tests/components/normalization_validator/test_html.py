"""report.html: well-formed, self-contained, complete."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator.check import find_violations
from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.html import render
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import Report
from components.normalization_validator.statistics import ComputeStatistics, Measured, with_shifts

COLUMNS = (
    Column("fare", "z_score", 0),
    Column('<b>&"quoted"\'', "min_max", 1),
    Column("flat", "z_score", 2),
    Column("never", None, 3),
)


def _measured(split: str, rows: int, offset: float) -> Measured:
    """Four columns; the first value of `fare` is far out."""
    rng = np.random.default_rng(rows)
    x = np.stack(
        [
            rng.normal(offset, 1, rows),
            rng.random(rows),
            np.zeros(rows),
            np.full(rows, np.nan),
        ],
        axis=1,
    )
    imputed = rng.random(x.shape) < 0.1
    x[imputed[:, 0], 0] = 0.0
    x[0, 0] = 1e6
    combine = ComputeStatistics(
        FeatureSet((Feature("x", 4, COLUMNS),), None, schema_pb2.Schema()), split
    )
    return combine.extract_output(
        combine.add_input(combine.create_accumulator(), Batch(rows, (Values(x, imputed, 0),)))
    )


@pytest.fixture(scope="module")
def report() -> Report:
    measured = _measured("train", 2000, 0.0), _measured("eval", 1500, 3.0)
    splits = tuple(with_shifts(each, measured[0]) for each in measured)
    limits = NormalizationLimits()
    violations = find_violations({s.split: s.columns for s in splits}, limits)
    return Report(blessed=False, limits=limits, splits=splits, violations=tuple(violations))


@pytest.fixture(scope="module")
def page(report) -> ElementTree.Element:
    text = render(report)
    # Written as XML too, so a strict parser can say that it is well-formed.
    script = re.search(r"<script>(.*)</script>", text, re.S)
    assert script is not None
    return ElementTree.fromstring(
        text.replace("<!DOCTYPE html>\n", "").replace(script.group(1), "")
    )


def test_the_page_is_self_contained(report):
    text = render(report)
    assert not re.search(r"""https?:|//[a-z]|url\(|@import|<link|<img|<iframe|\bsrc=""", text)
    assert text == render(report)


def test_one_row_per_column_and_split(page):
    rows = page.findall(".//tbody/tr")
    labels = [(r.find("th").attrib["data-v"], r.findall("td")[1].text) for r in rows]  # pyright: ignore
    assert labels == [(c.name, split) for c in COLUMNS for split in ("train", "eval")]


def test_violated_cells_carry_their_sentence(page, report):
    marked = [td.attrib["title"] for td in page.findall(".//td[@class='bad']")]
    sentences = "\n".join(marked).split("\n")
    assert sorted(sentences) == sorted(v.message for v in report.violations)
    listed = [li.text for li in page.findall(".//details/ul/li")]
    assert listed == [v.message for v in report.violations]
    assert any("column 'never', split eval" in sentence for sentence in sentences)


def test_each_histogram_says_what_it_shows(page, report):
    titles = [t.text for t in page.findall(".//svg/title")]
    assert len(titles) == 6  # `never` has no finite value
    assert titles[0] is not None
    # One outlier in two thousand does not squeeze the others into one bar.
    assert titles[0].startswith("fare, train: ")
    assert titles[0].endswith(" above")
    assert "bars 0.25 wide" in titles[0]


def test_a_report_without_a_violation_says_so(report):
    text = render(report.model_copy(update={"violations": (), "blessed": True}))
    assert "Every column is within its limits." in text
    assert ">BLESSED<" in text
    assert 'class="bad"' not in text


def test_the_report_survives_json(report):
    assert Report.model_validate_json(report.to_json()) == report
