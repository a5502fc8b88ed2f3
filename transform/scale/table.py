"""Every scaler by its name, `Group.kind`. A new one is a record here.

By moments and extremes, over the values that are not missing:

    z_score    (x - mean) / sqrt(variance), biased variance; numbers beyond `LARGEST` count as that
    min_max    (x - min) / (max - min); not clipped: an unseen x may leave [0, 1]
    max_abs    x / max |x|: 0 stays 0, and signs stay; an unseen x may leave [-1, 1]. It is
               scikit-learn's MaxAbsScaler, but a constant column is 0, as under every scaler that
               learns

By ranks and powers, for columns with outliers or skew:

    robust     (x - median) / (upper quartile - lower quartile); a column whose quartiles are equal
               though it varies is divided by max - min
    gaussian   Phi^-1(F(x)), 1/2g <= F(x) <= 1 - 1/2g: what makes any continuous column standard
               normal
    power      the z-score of Yeo and Johnson's power of x, see analyzers/moments.py. It is
               scikit-learn's PowerTransformer, but that powers are multiples of 0.04 from -2 to 4

F is the column's distribution function through its quantiles q_0 <= ... <= q_g (g = 1000) at the
levels j / g, linear in between. A value that several quantiles share (one that is frequent) has
the middle of their levels, as an average rank has. Phi is the standard normal distribution
function. |y| is at most 3.29: no outlier is larger, and an unseen x beyond the extremes is there.
It is scikit-learn's QuantileTransformer(output_distribution="normal") but for the ends, where that
one goes to 5.2 whatever the number of rows.

Pointwise, learning nothing:

    none       x itself, clipped and imputed
    log1p      sign(x) log(1 + |x|): log(1 + x) for x >= 0, odd, finite for all x
    asinh      log(x + sqrt(1 + x²)): like x near 0, like log(2 |x|) far from it; odd

    scale: [log1p, z_score]   the z-score of the logarithm: all that is learned is of f(x)

Both functions grow with x: bounds, ranks and medians of f(x) are f of those of x. That of a chain
is applied before anything is learned (columns/numbers.py): what is left is the scaler.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from transform.analyzers.fitted import FittedColumn
from transform.block import LARGEST, QUANTILE_GRID, Explanation, tf
from transform.scale.scaler import (
    EXTREMES,
    MOMENTS,
    QUANTILES,
    QUARTILES,
    Pointwise,
    Scaler,
    Statistic,
    ToScale,
    ValidationRule,
    linear,
    unit_of,
)

if TYPE_CHECKING:
    from transform.analyzers.moments import FittedStatistics, Powers


def _z_score(columns: ToScale) -> tf.Tensor:
    x = tf.clip_by_value(columns.x, -LARGEST, LARGEST)
    fitted = columns.statistics
    return linear(x, fitted.mean, tf.sqrt(fitted.variance), fitted.varies)


def _explain_z_score(fitted: FittedColumn) -> Explanation:
    deviation = math.sqrt(fitted.statistics.variance)
    return {"mean": fitted.statistics.mean, "standard_deviation": deviation}


def _min_max(columns: ToScale) -> tf.Tensor:
    fitted = columns.statistics
    unit = unit_of(fitted)
    low, high = fitted.minimum * unit, fitted.maximum * unit
    return linear(columns.x * unit, low, high - low, fitted.varies)


def _max_abs(columns: ToScale) -> tf.Tensor:
    fitted = columns.statistics
    largest = tf.maximum(tf.abs(fitted.minimum), tf.abs(fitted.maximum))
    return linear(columns.x, tf.zeros_like(largest), largest, fitted.varies)


def _robust(columns: ToScale) -> tf.Tensor:
    fitted, order = columns.statistics, columns.order
    unit = unit_of(fitted)
    quartiles = order.upper_quartile * unit - order.lower_quartile * unit
    span = fitted.maximum * unit - fitted.minimum * unit
    spread = tf.where(quartiles > 0, quartiles, span)
    return linear(columns.x * unit, order.median * unit, spread, fitted.varies)


def _explain_robust(fitted: FittedColumn) -> Explanation:
    statistics, order = fitted.statistics, fitted.order
    numbers = {n: getattr(order, n) for n in ("median", "lower_quartile", "upper_quartile")}
    if order.lower_quartile != order.upper_quartile:
        return numbers
    note = "quartiles are equal: divided by max - min"
    return {**numbers, "min": statistics.minimum, "max": statistics.maximum, "note": note}


_SHOWN_QUANTILES = (0, 10, 250, 500, 750, 990, 1000)  # of QUANTILE_GRID


def _gaussian(columns: ToScale) -> tf.Tensor:
    assert columns.quantiles is not None
    unit = unit_of(columns.statistics)
    scores = _normal_scores(columns.x * unit, columns.quantiles * unit[:, tf.newaxis])
    return tf.where(columns.statistics.varies, scores, tf.zeros_like(scores))


def _normal_scores(x: tf.Tensor, quantiles: tf.Tensor) -> tf.Tensor:
    """Return the formula of `gaussian`, every column by its own quantiles."""
    last = quantiles.shape[1] - 1
    columns = tf.transpose(x)  # [n, batch]
    below = tf.searchsorted(quantiles, columns, side="left")  # quantiles < x
    up_to = tf.searchsorted(quantiles, columns, side="right")  # quantiles <= x
    low = tf.maximum(below - 1, 0)
    high = tf.minimum(below, last)
    left, right = (tf.gather(quantiles, at, batch_dims=1) for at in (low, high))
    between = tf.clip_by_value(tf.math.divide_no_nan(columns - left, right - left), 0.0, 1.0)
    between = tf.cast(low, tf.float64) + tf.where(high > low, between, 0.0)
    level = tf.where(up_to > below, tf.cast(below + up_to - 1, tf.float64) / 2.0, between) / last
    level = tf.clip_by_value(level, 0.5 / last, 1.0 - 0.5 / last)
    return tf.transpose(tf.math.ndtri(level))


def _explain_gaussian(fitted: FittedColumn) -> Explanation:
    quantiles = fitted.values[QUANTILES.name]
    return {f"quantile_{at / QUANTILE_GRID:g}": quantiles[at] for at in _SHOWN_QUANTILES}


def _analyze(x: tf.Tensor, statistics: FittedStatistics) -> Powers:
    from transform.analyzers.moments import fitted_powers

    return fitted_powers(x, statistics)


_POWER = Statistic("power", analyze=_analyze)


def _power(columns: ToScale) -> tf.Tensor:
    from transform.analyzers.moments import yeo_johnson

    fitted: Powers = columns.learned[_POWER.name]
    y = yeo_johnson(columns.x, fitted.power)
    return linear(y, fitted.mean, tf.sqrt(fitted.variance), columns.statistics.varies)


def _explain_power(fitted: FittedColumn) -> Explanation:
    power = fitted.values[_POWER.name]
    deviation = math.sqrt(power["variance"])
    return {"power": power["power"], "mean": power["mean"], "standard_deviation": deviation}


class _Function(NamedTuple):
    """A function of float64 tensors (NaN stays NaN), of one number, and its inverse."""

    apply: Callable[[tf.Tensor], tf.Tensor]
    value: Callable[[float], float]
    inverse: Callable[[float], float]


def _asinh(x: tf.Tensor) -> tf.Tensor:
    # Far from 0, x² would overflow: log(2 |x|), which is as exact from 2^28 on.
    size = tf.abs(x)
    near = tf.minimum(size, 2.0**28)
    far = tf.math.log(tf.maximum(size, 1.0)) + math.log(2.0)
    return tf.sign(x) * tf.where(size > 2.0**28, far, tf.asinh(near))


def _odd(function: np.ufunc) -> Callable[[float], float]:
    return lambda x: float(np.copysign(function(abs(x)), x))


FUNCTIONS: Mapping[Pointwise, _Function] = {
    "log1p": _Function(
        lambda x: tf.sign(x) * tf.math.log1p(tf.abs(x)), _odd(np.log1p), _odd(np.expm1)
    ),
    "asinh": _Function(_asinh, _odd(np.arcsinh), _odd(np.sinh)),
}


def chain_kind(first: str, last: str) -> str:
    """Return `Column.kind` of a chain's columns."""
    return f"{first}+{last}"


_SINGLE = (
    Scaler(
        name="z_score",
        apply=_z_score,
        requires=(MOMENTS,),
        explain=_explain_z_score,
        validation_rule=ValidationRule("z_score"),
        chainable=True,
    ),
    Scaler(
        name="min_max",
        apply=_min_max,
        requires=(EXTREMES,),
        explain=lambda f: {"min": f.statistics.minimum, "max": f.statistics.maximum},
        validation_rule=ValidationRule("min_max"),
        chainable=True,
    ),
    Scaler(
        name="max_abs",
        apply=_max_abs,
        requires=(EXTREMES,),
        explain=lambda f: {"max_abs": max(abs(f.statistics.minimum), abs(f.statistics.maximum))},
        validation_rule=ValidationRule("max_abs", {"min": (-1.0, None), "max": (None, 1.0)}),
        chainable=True,
    ),
    Scaler(
        name="robust",
        apply=_robust,
        requires=(QUARTILES,),
        explain=_explain_robust,
        chainable=True,
    ),
    Scaler(
        name="gaussian",
        apply=_gaussian,
        requires=(QUANTILES,),
        explain=_explain_gaussian,
        validation_rule=ValidationRule("gaussian"),
    ),
    Scaler(
        name="power",
        apply=_power,
        requires=(_POWER,),
        explain=_explain_power,
        validation_rule=ValidationRule("z_score"),
    ),
    *(
        Scaler(
            name=name,
            apply=lambda columns, name=name: FUNCTIONS[name].apply(columns.x),
            validation_rule=ValidationRule("pointwise"),
        )
        for name in FUNCTIONS
    ),
    Scaler(name="none", apply=lambda columns: columns.x),
)
SCALERS: dict[str, Scaler] = {scaler.name: scaler for scaler in _SINGLE}
NAMES = tuple(SCALERS)
CHAINABLE = tuple(name for name in NAMES if SCALERS[name].chainable)
SCALERS |= {
    chain_kind(first, last): dataclasses.replace(
        SCALERS[last], name=chain_kind(first, last), first=first
    )
    for first in FUNCTIONS
    for last in CHAINABLE
}
