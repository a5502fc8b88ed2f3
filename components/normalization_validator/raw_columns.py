"""What StatisticsGen says of the raw columns: which held more than one value.

A transformed column that is constant has either come from a constant or lost what it held: to a
clip, a scale of 0, a vocabulary of one entry. The transformed examples alone do not show which.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.normalization_validator.columns import FeatureSet
from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.raw_distribution import raw_distribution
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    SplitStatistics,
    Violation,
)

_FILE = "FeatureStats.pb"  # as TFX's StatisticsGen calls it
#: float32 holds every whole number up to this, and beyond it not even those.
_EXACT = 2.0**24


class Span(NamedTuple):
    """The values of a raw column: from low to high, numbers or texts; equal where it is constant.

    `exact` is False for a float so large that tf.Example's float32 may have made values equal.
    """

    low: float | str
    high: float | str
    exact: bool = True

    @property
    def constant(self) -> bool:
        """Whether all values are one."""
        return self.low == self.high


class RawStatistics(NamedTuple):
    """What StatisticsGen found of the raw columns.

    Attributes:
        spans: Split -> column -> its values, where they are known.
        distributions: Of each column and split that has values, in the order of the splits.
    """

    spans: dict[str, dict[str, Span]]
    distributions: tuple[RawColumn, ...]


def read(artifact: Artifact, splits: Sequence[str]) -> RawStatistics:
    """Read the statistics of some splits. Splits without statistics have none.

    Args:
        artifact: ExampleStatistics, of StatisticsGen.
        splits: names of splits.
    """
    known = artifact_utils.decode_split_names(artifact.split_names)
    spans: dict[str, dict[str, Span]] = {}
    distributions = []
    for split in splits:
        spans[split] = {}
        if split not in known:
            continue
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), _FILE)
        with fileio.open(path, "rb") as file:
            datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()).datasets
        for feature in (each for dataset in datasets for each in dataset.features):
            if len(feature.path.step) != 1:
                continue
            name = feature.path.step[0]
            span, distribution = _span(feature), raw_distribution(feature, name, split)
            if span is not None:
                spans[split][name] = span
            if distribution is not None:
                distributions.append(distribution)
    return RawStatistics(spans, tuple(distributions))


def _span(feature: statistics_pb2.FeatureNameStatistics) -> Span | None:
    """Return the range of a column; None without a value, or with infinite ones."""
    kind = feature.WhichOneof("stats")
    if kind == "num_stats":
        numbers = feature.num_stats
        low, high = numbers.min, numbers.max
        if not numbers.common_stats.num_non_missing or not low <= high:
            return None
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        is_float = feature.type == statistics_pb2.FeatureNameStatistics.FLOAT
        return Span(low, high, exact=not (is_float and max(abs(low), abs(high)) >= _EXACT))
    if kind == "string_stats":
        buckets = feature.string_stats.rank_histogram.buckets
        texts = sorted(bucket.label for bucket in buckets if bucket.label)  # "" is a missing value
        return Span(texts[0], texts[-1]) if texts else None
    return None


def lost_columns(
    splits: Sequence[SplitStatistics],
    raw: Mapping[str, Mapping[str, Span]],
    feature_set: FeatureSet,
    limits: NormalizationLimits,
) -> list[Violation]:
    """Return a violation for each column that is constant on train where its raw column is not.

    Raw columns that differ between splits alone (one value in train, another in eval) count: then
    the transformed column is one value everywhere.
    """
    sources = {c.name: c.source for f in feature_set.features for c in f.columns}
    found = []
    for i, column in enumerate(splits[0].columns):
        if column.is_aspect or limits.ignores(column.name):
            continue
        source = sources[column.name]
        spans = {s.split: raw[s.split][source] for s in splits if source in raw[s.split]}
        lost = _lost([split.columns[i] for split in splits], spans)
        if lost is None:
            continue
        at, what = lost
        found.append(
            Violation(
                column=column.name,
                kind=column.kind,
                split=at.split,
                statistic="std",
                value=0.0,
                limit=f"{SECTION}.ignore",
                message=f"column {column.name!r}{f' ({column.kind})' if column.kind else ''}, "
                f"split {at.split}: every value is {at.mean:.6g}, but the raw column {source!r} "
                f"{what}: clip, scale or encoding lost its values ({SECTION}.ignore names columns "
                "that may be so)",
            )
        )
    return found


def _lost(
    columns: Sequence[ColumnStatistics], spans: Mapping[str, Span]
) -> tuple[ColumnStatistics, str] | None:
    train = columns[0]
    span = spans.get(train.split)
    if train.constant and span is not None and not span.constant:
        return train, f"goes from {_value(span.low)} to {_value(span.high)}"
    held = [column for column in columns if column.count]
    if not held or any(c.split not in spans for c in held) or not all(c.constant for c in held):
        return None
    first = spans[held[0].split].low
    for column in held[1:]:
        other = spans[column.split].low
        if other != first and column.mean == held[0].mean:
            return column, f"is {_value(first)} in {held[0].split} and {_value(other)} here"
    return None


def suspects(
    splits: Sequence[SplitStatistics],
    raw: Mapping[str, Mapping[str, Span]],
    feature_set: FeatureSet,
) -> list[str]:
    """Return a sentence for each constant column that tf.Example's float32 may have made so."""
    sources = {c.name: c.source for f in feature_set.features for c in f.columns}
    found = []
    for column in splits[0].columns:
        span = raw[splits[0].split].get(sources[column.name])
        if column.constant and span is not None and span.constant and not span.exact:
            found.append(
                f"column {column.name!r}: the raw column is {_value(span.low)} in every row, as "
                "tf.Example's float32 holds it, which cannot distinguish such numbers from their "
                "neighbours. If the data differ in digits that were lost, subtract an offset "
                "before ExampleGen, or store the column as whole numbers (int64)."
            )
    return found


def _value(value: float | str) -> str:
    return repr(value) if isinstance(value, str) else f"{value:.9g}"
