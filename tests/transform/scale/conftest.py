"""One scaler by itself, by NumPy's statistics of the data that it is fitted on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture(scope="session")
def scaled_by() -> Callable[..., np.ndarray]:
    """`scaled_by(kind, fitted, x=None)`: float64 `[rows, n]`; `x` None: the fitted rows."""
    import tensorflow as tf

    from transform.analyzers.order import OrderStatistics
    from transform.analyzers.power import Powers, yeo_johnson
    from transform.analyzers.statistic import QUANTILE_GRID
    from transform.analyzers.statistics import FittedStatistics
    from transform.columns.inputs import DenseColumns
    from transform.scale.scaler import ToScale
    from transform.scale.table import SCALERS
    from transform.spec.group import Group

    def scaled(kind: str, fitted: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
        n = fitted.shape[1]
        names = tuple(f"c{i}" for i in range(n))
        group = Group.model_validate({"name": "g", "columns": names, "scale": kind})
        low, high = fitted.min(axis=0), fitted.max(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            moments = fitted.mean(axis=0), fitted.var(axis=0)
        statistics = FittedStatistics(np.full(n, float(len(fitted))), *moments, low, high)
        quartiles = np.quantile(fitted, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
        levels = np.linspace(0.0, 1.0, QUANTILE_GRID + 1)
        quantiles = np.quantile(fitted, levels, axis=0, method="inverted_cdf").T
        values = tf.constant(fitted if x is None else x)
        power = tf.fill([n], np.float64(0.5))
        powered = yeo_johnson(tf.constant(fitted), power).numpy()
        columns = ToScale(
            names=names,
            groups=(group,) * n,
            x=values,
            given=values,
            statistics=FittedStatistics._make(map(tf.constant, statistics)),
            order=OrderStatistics._make(map(tf.constant, (low, high, *quartiles))),
            quantiles=tf.constant(quantiles),
            learned={
                "power": Powers(power, tf.constant(powered.mean(0)), tf.constant(powered.var(0)))
            },
            texts=DenseColumns({}, numbers=[], texts=[]).texts,
        )
        return SCALERS[kind].apply(columns).numpy()

    return scaled
