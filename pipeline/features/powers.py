"""Decide from percentiles whether a Yeo-Johnson power transform corrects a skewed column."""

from __future__ import annotations

import numpy as np

from pipeline.features.column_facts import Numbers

OUTLYING = 6.0  # interquartile ranges beyond the quartiles
_SYMMETRIC = 0.15  # skew after the power: half of the skew of a skewed column
_POWERS = np.arange(-20, 41) / 10.0
_FARTHEST = 300.0  # logarithm of the largest power of a value


def power_of(numbers: Numbers) -> tuple[float, float] | None:
    """Return the likeliest power and the remaining skew; None if it does not correct the column.

    Conservative: the skew must fall well below the limit for skewed columns, and no value may be an
    outlier afterwards; with ranks there are none.
    """
    x = np.asarray(numbers.percentiles, np.float64)
    inner = x[1:-1]  # without the extremes: each would count as a percent of the rows
    logs = float(np.mean(np.sign(inner) * np.log1p(np.abs(inner))))
    best, likelihood = None, -np.inf
    for power in _POWERS:
        y = _yeo_johnson(inner, power)
        deviation = 0.0 if y is None else float(y.std())
        if y is None or not deviation > 1e-7 * np.abs(y).max():
            continue
        found = -np.log(deviation) + (power - 1.0) * logs
        if found > likelihood:
            best, likelihood = float(power), found
    every = None if best is None else _yeo_johnson(x, best)
    if best is None or every is None:
        return None
    skew = bowley(*every[[10, 50, 90]].tolist())
    low, high = every[25], every[75]
    beyond = max(every[-1] - high, low - every[0])
    if abs(skew) >= _SYMMETRIC or not high > low or beyond > OUTLYING * (high - low):
        return None
    return best, skew


def bowley(low: float, middle: float, high: float) -> float:
    """Return Bowley's skew of a low, the middle and a high quantile, in [-1, 1]."""
    return (low + high - 2.0 * middle) / (high - low) if high > low else 0.0


def _yeo_johnson(x: np.ndarray, power: float) -> np.ndarray | None:
    exponent = np.where(x < 0, 2.0 - power, power)
    size = np.log1p(np.abs(x))
    if (exponent * size).max() > _FARTHEST:
        return None
    is_log = exponent == 0.0
    grown = np.expm1(exponent * size) / np.where(is_log, 1.0, exponent)
    return np.sign(x) * np.where(is_log, size, grown)
