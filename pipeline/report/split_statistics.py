"""The statistics of StatisticsGen (TFDV), split by split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import (
        CommonStatistics,
        FeatureNameStatistics,
    )

TRAIN_SPLIT = "train"
FILE = "FeatureStats.pb"


@dataclass(frozen=True)
class SplitStatistics:
    """Statistics of one split.

    Attributes:
        split: Its name.
        rows: Number of its rows.
        columns: Raw column -> its statistics, in their order; the name of a nested one is its path.
    """

    split: str
    rows: int
    columns: Mapping[str, FeatureNameStatistics]


def read_statistics(folder: Path) -> dict[str, SplitStatistics]:
    """Return split -> its statistics in an ExampleStatistics artifact, `train` first.

    A ValueError: a file is damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_metadata.proto.v0 import statistics_pb2

    found = []
    for file in folder.glob(f"Split-*/{FILE}"):
        split = file.parent.name.removeprefix("Split-")
        try:
            parsed = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read_bytes())
        except DecodeError as error:
            raise ValueError(f"{file} is damaged: {error}") from None
        for dataset in parsed.datasets[:1]:
            columns = {".".join(each.path.step) or each.name: each for each in dataset.features}
            found.append(SplitStatistics(split, dataset.num_examples, columns))
    found.sort(key=lambda each: (each.split != TRAIN_SPLIT, each.split))
    return {each.split: each for each in found}


def common_statistics(column: FeatureNameStatistics) -> CommonStatistics | None:
    """Return what columns of all types have; None if TFDV found no type."""
    kind = column.WhichOneof("stats")
    return getattr(column, kind).common_stats if kind else None


def missing_rows(column: FeatureNameStatistics, rows: int) -> int:
    """Return how many of the `rows` of a split have no value, or NaN.

    TFDV counts a row with an empty list as one that has values. Such rows are counted here where
    the column has at most one value per row.
    """
    common = common_statistics(column)
    if common is None:
        return rows
    missing = rows - common.num_non_missing
    if common.max_num_values <= 1:
        missing += common.num_non_missing - common.tot_num_values + _nan_values(column)
    return min(max(missing, 0), rows)


def _nan_values(column: FeatureNameStatistics) -> int:
    """Return the number of NaN values of a column of numbers, else 0."""
    histograms = column.num_stats.histograms if column.HasField("num_stats") else ()
    return max((each.num_nan for each in histograms), default=0)
