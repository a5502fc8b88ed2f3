"""What is known of a scaler: one record. `table.py` has them all.

    Scaler(
        name="max_abs",
        apply=...,
        requires=(EXTREMES,),
        explain=...,
        validation_rule=ValidationRule("max_abs", {"min": (-1.0, None), "max": (None, 1.0)}),
    )

The configuration, its JSON schema, Transform, the page and NormalizationValidator read
the record. `requires` is what it asks the one pass over the data to find. A scaler that learns
something else brings a `Statistic` with an analyzer, as `power` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from transform.analyzers.fitted import FittedColumn
from transform.block import Explanation, tf

if TYPE_CHECKING:
    from transform.analyzers.moments import FittedStatistics
    from transform.analyzers.quantiles import OrderStatistics


Pointwise = Literal["log1p", "asinh"]
"""A function of a number alone, which may stand first in a chain."""


@dataclass(frozen=True)
class ToScale:
    """All columns of one scaler, side by side: it scales them at once.

    Attributes:
        x: Float64 `[batch, n]`, clipped and imputed: finite.
        statistics: Of the clipped values, before imputation.
        order: The same; without quartiles where no column requires them.
        quantiles: Float64 `[n, QUANTILE_GRID + 1]`, of a scaler that requires quantiles; else None.
        learned: What each other required `Statistic` found, by its name.
    """

    x: tf.Tensor
    statistics: FittedStatistics
    order: OrderStatistics
    quantiles: tf.Tensor | None
    learned: Mapping[str, Any]


@dataclass(frozen=True)
class ValidationRule:
    """What NormalizationValidator checks of a scaler's columns on the train split.

    Attributes:
        name: A rule of the validator (`RULES` of components/normalization_validator/check.py),
            whose limits users set by its name; or another name, with bounds.
        bounds: Statistic -> lowest and highest value; None: unbounded. `mean` and `std` are over
            values that were not imputed, and a constant column's `std` is not checked. `min` and
            `max` are over every finite value. Users set the tolerance.
    """

    name: str
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scaler:
    """All that is known of one way to scale.

    Attributes:
        name: The word under `scale:`, and `Column.kind` of its columns.
        apply: Scales all columns of this kind at once: float64 `[batch, n]`, finite.
        requires: What the pass over the data finds of its columns. A scaler that requires anything
            gives 0 for a column that is constant in the analysis data, or has no value there, for
            unseen values too.
        explain: Returns the fitted numbers that it scales a column by.
        validation_rule: What NormalizationValidator checks of its columns; None: nothing special.
        takes: Types of columns.
        chainable: Whether it may end a chain, as in `scale: [log1p, z_score]`.
        first: The function whose values it scales, in a chain.
    """

    name: str
    apply: Callable[[ToScale], tf.Tensor]
    requires: tuple[Statistic, ...] = ()
    explain: Callable[[FittedColumn], Explanation] = lambda fitted: {}
    validation_rule: ValidationRule | None = None
    takes: tuple[Literal["float", "int"], ...] = ("float", "int")
    chainable: bool = False
    first: Pointwise | None = None

    @property
    def follows_learned_bounds(self) -> bool:
        """Whether `clip: {quantiles}` may precede it: one pass finds bounds and statistics."""
        return all(statistic.follows_learned_bounds for statistic in self.requires)

    @property
    def imputes_median(self) -> bool:
        """Whether the median, not the mean, replaces a missing value by default."""
        return any(statistic.imputes_median for statistic in self.requires)

    def explain_column(self, fitted: FittedColumn) -> Explanation:
        """Return what `explain` does; of a column that is constant or empty a note."""
        of = {"of": self.first} if self.first is not None else {}
        if not self.requires:
            return {**of, **self.explain(fitted)}
        assert fitted.statistics is not None
        if fitted.statistics.count == 0:
            return {**of, "note": "no value was there to fit: 0 everywhere"}
        if fitted.statistics.minimum == fitted.statistics.maximum:
            return {**of, "note": f"constant ({fitted.statistics.minimum:g}): 0 everywhere"}
        return {**of, **self.explain(fitted)}


def linear(x: tf.Tensor, center: tf.Tensor, spread: tf.Tensor, varies: tf.Tensor) -> tf.Tensor:
    """Return (x - center) / spread, every column by its own numbers; float64 `[batch, n]`.

    0 where a column does not vary or has no spread. No difference overflows, and no result is NaN,
    if x is in units of `unit_of`.
    """
    usable = tf.logical_and(varies, spread > 0)
    zero, one = tf.zeros_like(spread), tf.ones_like(spread)
    scaled = (x - tf.where(usable, center, zero)) / tf.where(usable, spread, one)
    return tf.where(usable, scaled, zero)


def unit_of(statistics: FittedStatistics) -> tf.Tensor:
    """Return the factor, float64 `[n]`, that keeps the range of a column from overflowing."""
    reach = tf.maximum(tf.abs(statistics.minimum), tf.abs(statistics.maximum))
    far = tf.logical_and(statistics.varies, reach > 2.0**1000)
    # A power of two: nothing is rounded.
    return tf.where(far, tf.constant(0.25, tf.float64), tf.ones_like(reach))


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
