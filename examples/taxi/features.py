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
    fare = dense_numbers(inputs["fare"])
    # Amounts come as float32, where 20 % of a fare is not quite 20 %: 192 rides tip exactly that
    # much, and only whole cents separate them from those who tip more.
    tip_cents = tf.round(100.0 * dense_numbers(inputs["tips"]))
    fare_cents = tf.round(100.0 * fare)
    # A comparison with NaN is false, which would call a missing tip a small one.
    missing = tf.math.is_nan(tip_cents + fare_cents)
    nan = tf.constant(float("nan"), tf.float64)
    label = tf.where(missing, nan, tf.cast(5.0 * tip_cents > fare_cents, tf.float64))
    return {
        "tip_over_20_percent": label,
        "fare_dollars": fare,
        "miles": dense_numbers(inputs["trip_miles"]),
        "minutes": dense_numbers(inputs["trip_seconds"]) / 60.0,
    }
