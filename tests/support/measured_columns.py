"""Statistics of transformed columns, as NormalizationValidator has them, without a run."""

from __future__ import annotations

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator.columns import Batch, Column, Feature, FeatureSet, Values
from components.normalization_validator.report import RawColumn, SplitStatistics
from components.normalization_validator.statistics import ComputeStatistics

COLUMNS = (
    Column("fare", "z_score", 0),
    Column('<b>&"quoted"\'', "min_max", 1),
    Column("flat", "z_score", 2),
    Column("never", None, 3),
    Column("fare_missing", "missing_indicator", 4, source="fare", is_aspect=True),
    Column("town=Ulm", "one_hot", 5, source="town", is_aspect=True),
    Column("town_other", "one_hot", 6, source="town", is_aspect=True),
)
RAW = (
    RawColumn(name="fare", split="train", values=9, missing=1, bars=(9.0, 0.0), low=1.0, high=3.0),
    RawColumn(
        name="town", split="eval", values=5, missing=5, bars=(3, 2), labels=("Ulm", "<Bonn>")
    ),
)


def measured(
    split: str, values: np.ndarray, imputed: np.ndarray, columns: tuple[Column, ...]
) -> SplitStatistics:
    """Returns the statistics of values `[rows, columns]`, as the validator computes them."""
    features = FeatureSet((Feature("x", len(columns), columns),), None, schema_pb2.Schema())
    combine = ComputeStatistics(features, split)
    batch = Batch(len(values), (Values(values, imputed, 0),))
    return combine.extract_output(combine.add_input(combine.create_accumulator(), batch))


def measured_split(split: str, rows: int, offset: float) -> SplitStatistics:
    """Returns four columns and three of 0 and 1; the first value of `fare` is far out."""
    rng = np.random.default_rng(rows)
    x = np.stack(
        [
            rng.normal(offset, 1, rows),
            rng.random(rows),
            np.zeros(rows),
            np.full(rows, np.nan),
            rng.random(rows) < 0.25,
            np.arange(rows) % 2 == 0,
            np.arange(rows) % 2 == 1,
        ],
        axis=1,
    )
    imputed = rng.random(x.shape) < 0.1
    imputed[:, 4:] = False
    x[imputed[:, 0], 0] = 0.0
    x[0, 0] = 1e6
    return measured(split, x, imputed, COLUMNS)
