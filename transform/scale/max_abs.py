"""scale: max_abs. x / max |x|: 0 stays 0, and signs stay; an unseen x may leave [-1, 1].

It is scikit-learn's MaxAbsScaler, but a constant column is 0, as under every scaler that learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import EXTREMES
from transform.scale.scaler import Scaler, ToScale, ValidationRule, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.scale.linear import linear

    fitted = columns.statistics
    largest = tf.maximum(tf.abs(fitted.minimum), tf.abs(fitted.maximum))
    return linear(columns.x, tf.zeros_like(largest), largest, fitted.varies)


def _explain(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    return {"max_abs": max(abs(fitted.statistics.minimum), abs(fitted.statistics.maximum))}


SCALER = Scaler(
    name="max_abs",
    apply=_apply,
    requires=(EXTREMES,),
    explain=explain_unless_constant(_explain),
    validation_rule=ValidationRule("max_abs", {"min": (-1.0, None), "max": (None, 1.0)}),
    chainable=True,
)
