"""The report comes back; raw columns are those of TFDV, as StatisticsGen writes them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    Report,
    SplitStatistics,
    Violation,
    raw_distribution,
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


def test_distributions_of_raw_columns():
    columns = {
        "fare": np.float32([1, 2, 3]),
        "none": np.float32([np.nan, np.nan, np.nan]),
        "endless": np.float32([4, np.inf, 4]),
        "count": np.array([1_000_000_000, 1_000_000_001, 1_000_000_002]),
        "street": ["a", "b", "a"],
    }
    (dataset,) = tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns)).datasets
    found = {
        feature.path.step[0]: raw_distribution(feature, feature.path.step[0], "train")
        for feature in dataset.features
    }
    ends = {name: each and (each.low, each.high) for name, each in found.items()}
    assert ends == {
        "fare": (1.0, 3.0),
        "none": None,
        "endless": (4.0, 4.0),
        "count": (1e9, 1e9 + 2),
        "street": (None, None),
    }
    assert found["street"].labels == ("a", "b")


def test_an_empty_list_is_a_missing_value():
    """As examples hold it; TFDV counts the row as one with values."""
    feature = statistics_pb2.FeatureNameStatistics(type=statistics_pb2.FeatureNameStatistics.STRING)
    texts = feature.string_stats
    texts.common_stats.num_non_missing, texts.common_stats.num_missing = 10, 2
    texts.common_stats.tot_num_values, texts.common_stats.max_num_values = 7, 1
    for label, count in (("a", 3), ("b", 4)):
        texts.rank_histogram.buckets.add(label=label, sample_count=count)
    found = raw_distribution(feature, "city", "train", most=1)
    assert found is not None
    assert (found.values, found.missing) == (7, 5)
    assert (found.labels, found.bars) == (("b",), (4.0,))
    texts.common_stats.tot_num_values = 0
    assert raw_distribution(feature, "city", "train") is None
