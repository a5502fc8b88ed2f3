"""report.json: what NormalizationValidator measured and what it concluded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.normalization_validator.limits import NormalizationLimits

REPORT_JSON = "report.json"
BIN_WIDTH = 1 / 16


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Histogram(_Frozen):
    """Counts over bins of `BIN_WIDTH`; `below` and `above` are outside of [-16, 16).

    Bin i covers [ (first_bin + i) BIN_WIDTH , (first_bin + i + 1) BIN_WIDTH ).
    """

    first_bin: int
    observed: tuple[int, ...]
    imputed: tuple[int, ...]
    below: int
    above: int


class ColumnStatistics(_Frozen):
    """One column of one split.

    values: finite and non-finite ones. absent: rows without a value (sparse features only).
    count, mean and std (population, ddof 0) are over the finite values that were not imputed: what
    Transform's analyzers saw. min and max are over every finite value: what the model sees. None
    stands for a statistic of no values. validation_rule, bounds, is_aspect: what Transform says may
    be expected of the column.
    """

    name: str
    kind: str | None
    feature: str
    position: int
    vocabulary_size: int | None
    split: str
    values: int
    absent: int
    non_finite: int
    imputed: int
    count: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    constant: bool
    histogram: Histogram | None
    validation_rule: str | None = None
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None
    is_aspect: bool = False

    @property
    def is_id(self) -> bool:
        """Whether the values are ids in [0, vocabulary_size), to which no scale applies."""
        return self.vocabulary_size is not None

    @property
    def non_finite_share(self) -> float:
        """Of the values: NaN or infinite."""
        return self.non_finite / self.values if self.values else 0.0

    @property
    def imputed_share(self) -> float:
        """Of the values: imputed."""
        return self.imputed / self.values if self.values else 0.0


class SplitStatistics(_Frozen):
    """Every column of one split."""

    split: str
    rows: int
    columns: tuple[ColumnStatistics, ...]


class RawColumn(_Frozen):
    """The distribution of a raw column in one split, as StatisticsGen found it.

    Numbers have `bars` over intervals of equal width from low to high; texts have one bar for each
    of their most frequent values, `labels`. values: rows with a value; missing: rows without.
    """

    name: str
    split: str
    values: int
    missing: int
    bars: tuple[float, ...]
    labels: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None


def raw_distribution(
    feature: statistics_pb2.FeatureNameStatistics, name: str, split: str, *, most: int = 20
) -> RawColumn | None:
    """Return the distribution of a column; None where no row has a value.

    Texts have at most `most` bars.
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
            labels=tuple(each.label[:60] for each in shown),
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


class Violation(_Frozen):
    """One violated limit; `message` says all of it in one sentence. value None: infinite."""

    column: str
    kind: str | None
    split: str
    statistic: str
    value: float | None
    limit: str
    message: str


class Report(_Frozen):
    """The content of report.json.

    sources: transformed column -> the raw or derived column that it comes from. raw: what is known
    of those, split by split; empty without StatisticsGen's output.
    """

    format: Literal["tfx-largebatch/normalization_report"] = "tfx-largebatch/normalization_report"
    version: Literal[2] = 2
    blessed: bool
    limits: NormalizationLimits
    splits: tuple[SplitStatistics, ...]
    violations: tuple[Violation, ...]
    sources: dict[str, str] = {}
    raw: tuple[RawColumn, ...] = ()

    def to_json(self) -> str:
        """Return the text of report.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"

    def split(self, name: str) -> SplitStatistics:
        """Return the statistics of one split; KeyError: there is none."""
        return {split.split: split for split in self.splits}[name]


def summary(violations: Sequence[Violation]) -> str:
    """Return one line per violation, behind a line that counts them."""
    limits = "1 limit is" if len(violations) == 1 else f"{len(violations)} limits are"
    return "\n".join([f"{limits} violated:", *(f"  - {v.message}" for v in violations)])
