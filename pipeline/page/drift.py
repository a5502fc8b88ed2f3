"""How far the values of a raw column moved between two data sets, from TFDV's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import FeatureNameStatistics

QUANTILES = 1
"""`Histogram.QUANTILES`: intervals with about equal numbers of values."""


def distance(before: FeatureNameStatistics, after: FeatureNameStatistics) -> float | None:
    """Return how far the values of a column moved: 0 (not at all) to 1.

    Texts: the largest difference of the share of a value, `max_v |p_v - q_v|`, as TFDV's drift
    comparator `infinity_norm` computes it (tensorflow_data_validation/anomalies/metrics.cc:
    shares of the values in the rank histogram).

    Numbers: the mean difference of the shares of values up to x, `∫ |F(x) - G(x)| dx / (b - a)`,
    over the range [a, b] of all deciles of both. The integral is the Wasserstein distance (S. S.
    Vallender, Theory of Probability and Its Applications 18, 1974), F and G are TFDV's quantile
    histograms. TFDV's comparator for numbers, the Jensen-Shannon divergence of ten intervals of
    equal width, is not used: one value far out changes all intervals, and so the divergence of two
    random parts of the same data can be larger than that of data that moved.

    Args:
        before: Statistics of the column in the data to compare with.
        after: Statistics of the column.

    Returns:
        The distance; None if either has no value or they are not of one type.
    """
    if before.HasField("string_stats") and after.HasField("string_stats"):
        return _largest_difference(_shares(before), _shares(after))
    if before.HasField("num_stats") and after.HasField("num_stats"):
        first, second = quantiles_of(before), quantiles_of(after)
        return None if first is None or second is None else _mean_difference(first, second)
    return None


def _shares(column: FeatureNameStatistics) -> dict[str, float]:
    buckets = column.string_stats.rank_histogram.buckets
    total = sum(bucket.sample_count for bucket in buckets)
    return {bucket.label: bucket.sample_count / total for bucket in buckets} if total else {}


def _largest_difference(before: dict[str, float], after: dict[str, float]) -> float | None:
    if not before or not after:
        return None
    return max(abs(before.get(value, 0.0) - after.get(value, 0.0)) for value in {**before, **after})


class Quantiles(NamedTuple):
    """TFDV's deciles of a column of numbers.

    Attributes:
        edges: Float64 `[11]`, ascending: lowest value, deciles, highest value.
        shares: Float64 `[11]`, share of the values up to each.
    """

    edges: np.ndarray
    shares: np.ndarray


def quantiles_of(column: FeatureNameStatistics) -> Quantiles | None:
    """Return the deciles of a column; None if it has no numbers."""
    for histogram in column.num_stats.histograms:
        if histogram.type != QUANTILES or histogram.name or not histogram.buckets:
            continue
        buckets = histogram.buckets
        edges = np.array([buckets[0].low_value, *(bucket.high_value for bucket in buckets)])
        counts = np.array([bucket.sample_count for bucket in buckets])
        if np.isfinite(edges[1:-1]).all() and counts.sum() > 0:
            return Quantiles(edges, np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum())
    return None


def _mean_difference(first: Quantiles, second: Quantiles) -> float:
    inner = np.concatenate([first.edges[1:-1], second.edges[1:-1]])
    if not inner.size or inner.min() == inner.max():
        return 0.0
    points = np.unique(inner)
    # F and G are linear between two points; the trapezoid of |F - G| is exact but for crossings.
    right = np.abs(shares_up_to(first, points)[0] - shares_up_to(second, points)[0])
    left = np.abs(shares_up_to(first, points)[1] - shares_up_to(second, points)[1])
    area = np.sum(np.diff(points) * (right[:-1] + left[1:]) / 2)
    return float(area / (points[-1] - points[0]))


def shares_up_to(quantiles: Quantiles, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of the values up to each point `[points]`, and that below each.

    Values are uniform within an interval. Where intervals have width 0, many values are equal: the
    interval before them then counts as those values, too.
    """
    knots, first = np.unique(quantiles.edges, return_index=True)
    last = np.searchsorted(quantiles.edges, knots, side="right") - 1
    right, left = quantiles.shares[last], quantiles.shares[first]
    left = np.where(last > first, np.concatenate([[0.0], right[:-1]]), left)
    place = np.searchsorted(knots, points, side="right") - 1
    at = np.clip(place, 0, len(knots) - 1)
    after = np.minimum(at + 1, len(knots) - 1)
    width = np.where(after > at, knots[after] - knots[at], 1.0)
    between = right[at] + (points - knots[at]) / width * (left[after] - right[at])
    between = np.where(points < knots[0], 0.0, np.where(points > knots[-1], 1.0, between))
    is_knot = points == knots[at]
    return np.where(is_knot, right[at], between), np.where(is_knot, left[at], between)
