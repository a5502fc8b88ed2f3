"""The taxi data's derived columns: the label, and the amounts on a linear scale."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def derive(inputs: dict[str, Any]) -> dict[str, Any]:
    """New columns of a batch of rides.

    Args:
        inputs: raw column -> SparseTensor `[batch, 1]`, a missing value being absent.

    Returns:
        `tip_over_20_percent`: 1 where the tip exceeds 20 % of the fare, 0 elsewhere; and
        `fare_dollars`, `miles`, `minutes`. Each float32 `[batch]`, NaN where missing.
    """
    tips = _dense(inputs["tips"])
    fare = _dense(inputs["fare"])
    return {
        # A comparison with NaN is false, which would call a missing tip a small one.
        "tip_over_20_percent": tf.where(
            tf.math.is_nan(tips + fare), float("nan"), tf.cast(tips > 0.2 * fare, tf.float32)
        ),
        "fare_dollars": fare,
        "miles": _dense(inputs["trip_miles"]),
        "minutes": _dense(inputs["trip_seconds"]) / 60.0,
    }


def _dense(column: Any) -> tf.Tensor:
    values = tf.SparseTensor(column.indices, tf.cast(column.values, tf.float32), column.dense_shape)
    return tf.sparse.to_dense(values, default_value=float("nan"))[:, 0]
