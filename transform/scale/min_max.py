"""scale: min_max. (x - min) / (max - min); not clipped: an unseen x may leave [0, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import EXTREMES
from transform.scale.scaler import Scaler, ToScale, ValidationRule, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
    from transform.scale.linear import linear, unit_of

    fitted = columns.statistics
    unit = unit_of(fitted)
    low, high = fitted.minimum * unit, fitted.maximum * unit
    return linear(columns.x * unit, low, high - low, fitted.varies)


def _explain(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    return {"min": fitted.statistics.minimum, "max": fitted.statistics.maximum}


SCALER = Scaler(
    name="min_max",
    apply=_apply,
    requires=(EXTREMES,),
    explain=explain_unless_constant(_explain),
    validation_rule=ValidationRule("min_max"),
    chainable=True,
)
