"""scale: z_score. (x - mean) / sqrt(variance), biased variance.

Numbers beyond `statistics.LARGEST` count as that one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import MOMENTS
from transform.scale.scaler import Scaler, ToScale, ValidationRule, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.analyzers.statistics import LARGEST
    from transform.scale.linear import linear

    x = tf.clip_by_value(columns.x, -LARGEST, LARGEST)
    fitted = columns.statistics
    return linear(x, fitted.mean, tf.sqrt(fitted.variance), fitted.varies)


def _explain(fitted: FittedColumn) -> Explanation:
    assert fitted.statistics is not None
    deviation = math.sqrt(fitted.statistics.variance)
    return {"mean": fitted.statistics.mean, "standard_deviation": deviation}


SCALER = Scaler(
    name="z_score",
    apply=_apply,
    requires=(MOMENTS,),
    explain=explain_unless_constant(_explain),
    validation_rule=ValidationRule("z_score"),
    chainable=True,
)
