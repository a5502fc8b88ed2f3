"""Scalers by ranks and powers: for columns with outliers or skew.

    robust     (x - median) / (upper quartile - lower quartile); a column whose quartiles are equal
               though it varies is divided by max - min
    gaussian   Phi^-1(F(x)), 1/2g <= F(x) <= 1 - 1/2g: what makes any continuous column standard
               normal
    power      the z-score of Yeo and Johnson's power of x, see analyzers/power.py. It is
               scikit-learn's PowerTransformer, but that powers are multiples of 0.04 from -2 to 4

F is the column's distribution function through its quantiles q_0 <= ... <= q_g (g = 1000) at the
levels j / g, linear in between. A value that several quantiles share (one that is frequent) has
the middle of their levels, as an average rank has. Phi is the standard normal distribution
function. |y| is at most 3.29: no outlier is larger, and an unseen x beyond the extremes is there.
It is scikit-learn's QuantileTransformer(output_distribution="normal") but for the ends, where that
one goes to 5.2 whatever the number of rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transform.block import QUANTILE_GRID, Explanation
from transform.scale.scaler import (
    QUANTILES,
    QUARTILES,
    Scaler,
    Statistic,
    ToScale,
    ValidationRule,
    explain_unless_constant,
    linear,
    unit_of,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted import FittedColumn
    from transform.analyzers.moments import FittedStatistics, Powers


def _robust(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    fitted, order = columns.statistics, columns.order
    assert order is not None
    unit = unit_of(fitted)
    quartiles = order.upper_quartile * unit - order.lower_quartile * unit
    span = fitted.maximum * unit - fitted.minimum * unit
    spread = tf.where(quartiles > 0, quartiles, span)
    return linear(columns.x * unit, order.median * unit, spread, fitted.varies)


def _explain_robust(fitted: FittedColumn) -> Explanation:
    statistics, order = fitted.statistics, fitted.order
    assert statistics is not None
    assert order is not None
    numbers = {
        "median": order.median,
        "lower_quartile": order.lower_quartile,
        "upper_quartile": order.upper_quartile,
    }
    if order.lower_quartile != order.upper_quartile:
        return numbers
    note = "quartiles are equal: divided by max - min"
    return {**numbers, "min": statistics.minimum, "max": statistics.maximum, "note": note}


_SHOWN_QUANTILES = (0, 10, 250, 500, 750, 990, 1000)  # of QUANTILE_GRID


def _gaussian(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    assert columns.quantiles is not None
    unit = unit_of(columns.statistics)
    scores = _normal_scores(columns.x * unit, columns.quantiles * unit[:, tf.newaxis])
    return tf.where(columns.statistics.varies, scores, tf.zeros_like(scores))


def _normal_scores(x: tf.Tensor, quantiles: tf.Tensor) -> tf.Tensor:
    """Return the formula of `gaussian`, every column by its own quantiles."""
    import tensorflow as tf

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
    import tensorflow as tf

    from transform.analyzers.moments import yeo_johnson

    fitted: Powers = columns.learned[_POWER.name]
    y = yeo_johnson(columns.x, fitted.power)
    return linear(y, fitted.mean, tf.sqrt(fitted.variance), columns.statistics.varies)


def _explain_power(fitted: FittedColumn) -> Explanation:
    power = fitted.values[_POWER.name]
    return {
        "power": power["power"],
        "mean": power["mean"],
        "standard_deviation": math.sqrt(power["variance"]),
    }


SCALERS = (
    Scaler(
        name="robust",
        apply=_robust,
        requires=(QUARTILES,),
        explain=explain_unless_constant(_explain_robust),
        chainable=True,
    ),
    Scaler(
        name="gaussian",
        apply=_gaussian,
        requires=(QUANTILES,),
        explain=explain_unless_constant(_explain_gaussian),
        validation_rule=ValidationRule("gaussian"),
    ),
    Scaler(
        name="power",
        apply=_power,
        requires=(_POWER,),
        explain=explain_unless_constant(_explain_power),
        validation_rule=ValidationRule("z_score"),
    ),
)
