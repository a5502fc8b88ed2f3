"""Shares of a column, by counts in Python."""

from __future__ import annotations

import pytest

from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    Report,
    SplitStatistics,
    Violation,
    summary,
)

COLUMN = ColumnStatistics.model_validate(
    {
        "name": "x",
        "kind": "integer",
        "feature": "packed_int",
        "position": 0,
        "split": "train",
        "values": 8,
        "absent": 2,
        "non_finite": 1,
        "imputed": 2,
        "count": 5,
        **dict.fromkeys(("mean", "std", "min", "max", "histogram", "vocabulary_size")),
        "constant": False,
    }
)


def test_a_report_comes_back_and_has_its_splits():
    split = SplitStatistics(split="train", rows=10, columns=(COLUMN,))
    report = Report(blessed=True, limits=NormalizationLimits(), splits=(split,), violations=())
    assert Report.model_validate_json(report.to_json()) == report
    assert report.split("train") == split
    with pytest.raises(KeyError, match="eval"):
        report.split("eval")


def test_a_summary_counts_and_lists():
    violation = Violation(
        column="x", kind=None, split="train", statistic="mean", value=1.0, limit="l", message="m"
    )
    assert summary([violation]) == "1 limit is violated:\n  - m"
    assert summary([violation] * 2).startswith("2 limits are violated:\n  - m\n  - m")
