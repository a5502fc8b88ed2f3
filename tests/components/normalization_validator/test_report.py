"""Raw columns are those of TFDV, as StatisticsGen writes them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.normalization_validator.report import (
    raw_distribution,
)


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
