"""scale: power. The z-score of Yeo and Johnson's power of x, see analyzers/power.py.

It is scikit-learn's PowerTransformer, but that powers are multiples of 0.04 from
-2 to 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.analyzers.statistic import Statistic
from transform.scale.scaler import Scaler, ToScale, ValidationRule, explain_unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn
    from transform.analyzers.power import Powers
    from transform.analyzers.statistics import FittedStatistics


def _analyze(x: tf.Tensor, statistics: FittedStatistics) -> Powers:
    from transform.analyzers.power import fitted_powers

    return fitted_powers(x, statistics)


POWER = Statistic("power", analyze=_analyze)


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.analyzers.power import yeo_johnson
    from transform.scale.linear import linear

    fitted: Powers = columns.learned[POWER.name]
    y = yeo_johnson(columns.x, fitted.power)
    return linear(y, fitted.mean, tf.sqrt(fitted.variance), columns.statistics.varies)


def _explain(fitted: FittedColumn) -> Explanation:
    power = fitted.values[POWER.name]
    return {
        "power": power["power"],
        "mean": power["mean"],
        "standard_deviation": math.sqrt(power["variance"]),
    }


SCALER = Scaler(
    name="power",
    apply=_apply,
    requires=(POWER,),
    explain=explain_unless_constant(_explain),
    validation_rule=ValidationRule("z_score"),
)
