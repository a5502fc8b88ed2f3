"""The distribution of a raw column, out of TFDV's statistics."""

from __future__ import annotations

import math

from tensorflow_metadata.proto.v0 import statistics_pb2

from components.normalization_validator.report import RawColumn

MOST_TEXTS = 20
LONGEST_TEXT = 60  # characters


def raw_distribution(
    feature: statistics_pb2.FeatureNameStatistics, name: str, split: str, *, most: int = MOST_TEXTS
) -> RawColumn | None:
    """Return the distribution of a column; None where no row has a value.

    Args:
        feature: Statistics of the column.
        name: Its name.
        split: Its split.
        most: Largest number of bars of a column of texts.
    """
    kind = feature.WhichOneof("stats")
    if kind == "num_stats":
        numbers, texts = feature.num_stats, None
        common = numbers.common_stats
    elif kind == "string_stats":
        numbers, texts = None, feature.string_stats
        common = texts.common_stats
    else:
        return None
    # TFDV counts an empty list, which is how examples hold a missing value, as "non missing".
    empty = common.num_non_missing - common.tot_num_values if common.max_num_values <= 1 else 0
    values = common.num_non_missing - empty
    if not values:
        return None
    fields = {"name": name, "split": split, "values": values, "missing": common.num_missing + empty}
    if texts is not None:
        buckets = sorted(texts.rank_histogram.buckets, key=lambda each: -each.sample_count)
        shown = buckets[:most]
        return RawColumn(
            **fields,
            bars=tuple(each.sample_count for each in shown),
            labels=tuple(each.label[:LONGEST_TEXT] for each in shown),
        )
    assert numbers is not None
    buckets = [
        bucket
        for histogram in numbers.histograms
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
