"""The taxi data's derived columns: the label, and the amounts on a linear scale."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from transform import dense_numbers


def derive(inputs: dict[str, Any]) -> dict[str, Any]:
    """New columns of a batch of rides.

    Args:
        inputs: raw column -> tensor, as Transform hands it over.

    Returns:
        `tip_over_20_percent`: 1 where the tip exceeds 20 % of the fare, 0 elsewhere; and
        `fare_dollars`, `miles`, `minutes`. Each float64 `[batch]`, NaN where missing.
    """
    tips = dense_numbers(inputs["tips"])
    fare = dense_numbers(inputs["fare"])
    # A comparison with NaN is false, which would call a missing tip a small one.
    missing = tf.math.is_nan(tips + fare)
    nan = tf.constant(float("nan"), tf.float64)
    return {
        "tip_over_20_percent": tf.where(missing, nan, tf.cast(tips > 0.2 * fare, tf.float64)),
        "fare_dollars": fare,
        "miles": dense_numbers(inputs["trip_miles"]),
        "minutes": dense_numbers(inputs["trip_seconds"]) / 60.0,
    }
