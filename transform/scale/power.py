"""scale: power. The z-score of Yeo and Johnson's power of x, see analyzers/power.py.

It is scikit-learn's PowerTransformer, but that powers are multiples of 0.04 from
-2 to 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from transform.scale.scaler import Scaler, ToScale, unless_constant

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn


def _apply(columns: ToScale) -> tf.Tensor:
    import tensorflow as tf

    from transform.analyzers.power import yeo_johnson
    from transform.scale.linear import linear

    fitted = columns.powers
    assert fitted is not None
    y = yeo_johnson(columns.x, fitted.power)
    return linear(y, fitted.mean, tf.sqrt(fitted.variance), columns.statistics.varies)


def _explain(fitted: FittedColumn) -> dict[str, Any]:
    power = fitted.power
    assert power is not None
    return {
        "power": power.power,
        "mean": power.mean,
        "standard_deviation": math.sqrt(power.variance),
    }


SCALER = Scaler(
    name="power",
    learns="power",
    apply=_apply,
    explain=unless_constant(_explain),
    judged_as="z_score",
)
