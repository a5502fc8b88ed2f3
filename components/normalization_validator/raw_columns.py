"""What StatisticsGen says of the raw columns: their distributions, and which were not constant.

A transformed column that is constant has either come from a constant or lost what it held: to a
clip, a scale of 0, a vocabulary of one entry. The transformed examples alone do not show which.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import RawColumn, SplitStatistics, Violation

_FILE = "FeatureStats.pb"  # as TFX's StatisticsGen calls it
_MOST_TEXTS = 20
_LONGEST_TEXT = 60  # characters


def read(artifact: Artifact, splits: Sequence[str]) -> tuple[RawColumn, ...]:
    """Read the statistics of some splits, in their order. Splits without statistics have none.

    Args:
        artifact: ExampleStatistics, of StatisticsGen.
        splits: names of splits.
    """
    known = artifact_utils.decode_split_names(artifact.split_names)
    found = []
    for split in (each for each in splits if each in known):
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), _FILE)
        with fileio.open(path, "rb") as file:
            datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read()).datasets
        for feature in (each for dataset in datasets for each in dataset.features):
            if len(feature.path.step) == 1:
                found.append(raw_distribution(feature, feature.path.step[0], split))
    return tuple(each for each in found if each is not None)


def raw_distribution(
    feature: statistics_pb2.FeatureNameStatistics, name: str, split: str, *, most: int = _MOST_TEXTS
) -> RawColumn | None:
    """Return the distribution of a column; None where no row has a value.

    Args:
        feature: Statistics of the column.
        name: Its name.
        split: Its split.
        most: Largest number of bars of a column of texts.
    """
    if not (kind := feature.WhichOneof("stats")) or kind not in ("num_stats", "string_stats"):
        return None
    common = getattr(feature, kind).common_stats
    # TFDV counts an empty list, which is how examples hold a missing value, as "non missing".
    empty = common.num_non_missing - common.tot_num_values if common.max_num_values <= 1 else 0
    values = common.num_non_missing - empty
    if not values:
        return None
    fields = {"name": name, "split": split, "values": values, "missing": common.num_missing + empty}
    if kind == "string_stats":
        buckets = feature.string_stats.rank_histogram.buckets
        shown = sorted(buckets, key=lambda each: -each.sample_count)[:most]
        return RawColumn(
            **fields,
            bars=tuple(each.sample_count for each in shown),
            labels=tuple(each.label[:_LONGEST_TEXT] for each in shown),
        )
    buckets = [
        bucket
        for histogram in feature.num_stats.histograms
        if histogram.type == statistics_pb2.Histogram.STANDARD and not histogram.name
        for bucket in histogram.buckets
        if math.isfinite(bucket.low_value) and math.isfinite(bucket.high_value)
    ]
    if not buckets:
        return None
    return RawColumn(
        **fields,
        bars=tuple(each.sample_count for each in buckets),
        low=buckets[0].low_value,
        high=buckets[-1].high_value,
    )


def lost_columns(
    train: SplitStatistics,
    raw: Sequence[RawColumn],
    sources: Mapping[str, str],
    limits: NormalizationLimits,
) -> list[Violation]:
    """Return a violation for each column that is constant on train where its raw column is not."""
    raw_of = {column.name: column for column in raw if column.split == train.split}
    found = []
    for column in train.columns:
        source = sources[column.name]
        if not column.constant or column.is_aspect or limits.ignores(column.name):
            continue
        held = _held(raw_of[source]) if source in raw_of else None
        if held is not None:
            what = (
                f"every value is {column.mean:.6g}, but the raw column {source!r} {held}: clip, "
                f"scale or encoding lost its values ({SECTION}.ignore names columns that may be so)"
            )
            found.append(Violation.of(column, "std", 0.0, "ignore", what))
    return found


def _held(raw: RawColumn) -> str | None:
    """Return what a raw column holds; None where that is one value, or none."""
    if raw.labels is None:
        return None if raw.low == raw.high else f"goes from {raw.low:.9g} to {raw.high:.9g}"
    texts = sorted(filter(None, raw.labels))  # "" is a missing value
    return f"goes from {texts[0]!r} to {texts[-1]!r}" if len(texts) > 1 else None
