"""A constant that the raw data had not. The statistics are TFDV's own, as StatisticsGen writes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.types import standard_artifacts

from components.normalization_validator import raw_columns
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.raw_columns import raw_distribution
from components.normalization_validator.report import ColumnStatistics, RawColumn, SplitStatistics


def write_statistics(folder, **splits: dict[str, list]) -> standard_artifacts.ExampleStatistics:
    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(folder)
    artifact.split_names = str(list(splits)).replace("'", '"')
    for split, columns in splits.items():
        file = folder / f"Split-{split}" / "FeatureStats.pb"
        file.parent.mkdir(parents=True)
        found = tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))
        file.write_bytes(found.SerializeToString())
    return artifact


def _f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


TRAIN = {
    "fare": _f(1, 2, 3),
    "flat": _f(5, 5, 5),
    "holes": _f(4, np.nan, 4),
    "none": _f(np.nan, np.nan, np.nan),
    "endless": _f(4, np.inf, 4),
    "large": (1e9 + np.array([-1, 0, 1])).astype(np.float32),
    "count": np.array([1_000_000_000, 1_000_000_001, 1_000_000_002]),
    "city": ["Ulm", "", "Ulm"],
    "street": ["a", "b", "a"],
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> tuple[RawColumn, ...]:
    artifact = write_statistics(tmp_path_factory.mktemp("statistics"), train=TRAIN)
    return raw_columns.read(artifact, ["train", "test"])  # the latter without statistics


def _column(name: str, split: str, **changes) -> ColumnStatistics:
    fields = {
        "name": name,
        "kind": "z_score",
        "feature": "x",
        "position": 0,
        "vocabulary_size": None,
        "split": split,
        "values": 3,
        "count": 3,
        "constant": True,
        "histogram": None,
        **dict.fromkeys(("absent", "non_finite", "imputed"), 0),
        **dict.fromkeys(("mean", "std", "min", "max"), 0.0),
    }
    return ColumnStatistics.model_validate({**fields, **changes})


def _lost(raw, name: str, limits: dict | None = None, **changes) -> list[str]:
    train = SplitStatistics(split="train", rows=3, columns=(_column(name, "train", **changes),))
    accepted = NormalizationLimits.of(limits)
    found = raw_columns.lost_columns(train, raw, {name: name}, accepted)
    return [violation.message for violation in found]


def test_a_constant_that_the_raw_data_had_not_is_a_violation(raw):
    assert _lost(raw, "fare") == [
        "column 'fare' (z_score), split train: every value is 0, but the raw column 'fare' goes "
        "from 1 to 3: clip, scale or encoding lost its values (normalization.ignore names columns "
        "that may be so)"
    ]
    assert len(_lost(raw, "count")) == 1
    assert "goes from 'a' to 'b'" in _lost(raw, "street", kind="vocabulary")[0]
    assert _lost(raw, "fare", {"ignore": ["fare"]}) == []


def test_a_constant_that_the_raw_data_had_too_is_none(raw):
    for name in ["flat", "holes", "none", "endless", "large", "city", "derived"]:
        assert _lost(raw, name) == []


def test_one_aspect_of_a_column_may_be_constant(raw):
    assert _lost(raw, "street", kind="one_hot", is_aspect=True) == []


def test_a_column_that_varies_lost_nothing(raw):
    assert _lost(raw, "fare", constant=False) == []


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
