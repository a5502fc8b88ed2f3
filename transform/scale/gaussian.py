"""scale: gaussian. Rank -> normal score: what makes any continuous column standard normal.

    y = Phi^-1(F(x)),  1/2g <= F(x) <= 1 - 1/2g

F is the column's distribution function through its quantiles q_0 <= ... <= q_g (g = 1000) at the
levels j / g, linear in between. A value that several quantiles share (one that is frequent) has
the middle of their levels, as an average rank has. Phi is the standard normal distribution
function. |y| is at most 3.29: no outlier is larger, and an unseen x beyond the extremes is there.

It is scikit-learn's QuantileTransformer(output_distribution="normal") but for the ends, where that
one goes to 5.2 whatever the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import QUANTILE_GRID, QUANTILES
from transform.scale.scaler import Scaler, ToScale, ValidationRule, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn

_SHOWN_QUANTILES = (0, 10, 250, 500, 750, 990, 1000)  # of QUANTILE_GRID


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.scale.linear import unit_of

    assert columns.quantiles is not None
    unit = unit_of(columns.statistics)
    scores = normal_scores(columns.x * unit, columns.quantiles * unit[:, tf.newaxis])
    return tf.where(columns.statistics.varies, scores, tf.zeros_like(scores))


def normal_scores(x: tf.Tensor, quantiles: tf.Tensor) -> tf.Tensor:
    """Return the formula above, every column by its own quantiles.

    Args:
        x: float64 `[batch, n]`, finite.
        quantiles: float64 `[n, g + 1]`, ascending in each row.

    Returns:
        float64 `[batch, n]`, finite.
    """
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


def _explain(fitted: FittedColumn) -> Explanation:
    quantiles = fitted.values[QUANTILES.name]
    return {f"quantile_{at / QUANTILE_GRID:g}": quantiles[at] for at in _SHOWN_QUANTILES}


SCALER = Scaler(
    name="gaussian",
    apply=_apply,
    requires=(QUANTILES,),
    explain=explain_unless_constant(_explain),
    validation_rule=ValidationRule("gaussian"),
)
