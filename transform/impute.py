"""What a missing number becomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.spec import Clip, Constant, Group
from transform.statistics import ColumnStatistics


def clip(x: tf.Tensor, bounds: Sequence[Clip | None]) -> tf.Tensor:
    """Limits each column to its bounds; NaN stays NaN.

    Args:
        x: float64 `[batch, n]`.
        bounds: one entry per column.
    """
    if not any(bounds):
        return x
    low = [-np.inf if b is None or b.min is None else b.min for b in bounds]
    high = [np.inf if b is None or b.max is None else b.max for b in bounds]
    limited = tf.minimum(tf.maximum(x, np.asarray(low, np.float64)), np.asarray(high, np.float64))
    return tf.where(tf.math.is_nan(x), x, limited)


def fill_values(groups: Sequence[Group], statistics: ColumnStatistics) -> tf.Tensor:
    """The value of a missing number: the group's constant, else the mean of those present.

    Args:
        groups: the group of each column.
        statistics: of the clipped columns.

    Returns:
        float64 `[n]`; 0 for the mean of a column without any value.
    """
    constants = [g.impute.constant if isinstance(g.impute, Constant) else np.nan for g in groups]
    fixed = np.asarray(constants, np.float64)
    if not np.isnan(fixed).any():
        return tf.constant(fixed)
    return tf.where(np.isnan(fixed), statistics.mean, np.nan_to_num(fixed))
