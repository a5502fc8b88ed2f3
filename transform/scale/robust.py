"""scale: robust. (x - median) / (upper quartile - lower quartile).

A column whose quartiles are equal though it varies is divided by max - min.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import QUARTILES
from transform.scale.scaler import Scaler, ToScale, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.scale.linear import linear, unit_of

    fitted, order = columns.statistics, columns.order
    assert order is not None
    unit = unit_of(fitted)
    quartiles = order.upper_quartile * unit - order.lower_quartile * unit
    span = fitted.maximum * unit - fitted.minimum * unit
    spread = tf.where(quartiles > 0, quartiles, span)
    return linear(columns.x * unit, order.median * unit, spread, fitted.varies)


def _explain(fitted: FittedColumn) -> Explanation:
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


SCALER = Scaler(
    name="robust",
    apply=_apply,
    requires=(QUARTILES,),
    explain=explain_unless_constant(_explain),
    chainable=True,
)
