"""What a scaler asks the one pass over the data to find.

    SCALER = Scaler(name="min_max", requires=(EXTREMES,), ...)

A scaler that learns something else brings a `Statistic` with an analyzer, as `power` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

QUANTILE_GRID = 1000  # learned quantiles are multiples of 1/1000, and as exact as that


@dataclass(frozen=True)
class Statistic:
    """A statistic of each column, over the values that are not missing.

    Attributes:
        name: What it is kept as in the transform graph.
        analyze: Returns a NamedTuple of float64 `[n]` tensors from the columns, float64 `[batch,
            n]` with NaN where a value is missing, and their `FittedStatistics`. All columns that
            require the statistic are analyzed at once. None: an analyzer that all columns share
            finds it.
        follows_learned_bounds: Whether it is that of the clipped values under `clip: {quantiles}`.
            Another one would need the bounds before the pass that finds them.
        imputes_median: Whether the median, not the mean, replaces a missing value by default.
    """

    name: str
    analyze: Callable[[Any, Any], Any] | None = None
    follows_learned_bounds: bool = False
    imputes_median: bool = False


EXTREMES = Statistic("extremes", follows_learned_bounds=True)
MOMENTS = Statistic("moments")
QUARTILES = Statistic("quartiles", follows_learned_bounds=True, imputes_median=True)
QUANTILES = Statistic("quantiles", follows_learned_bounds=True, imputes_median=True)
