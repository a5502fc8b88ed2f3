"""Derived float64 up to 1.8e308: no scaler overflows, whatever the filling.

Reference: NumPy in long double (80 bits), on 2 shards; tolerance 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import scaled  # noqa: E402
from transform.scale.table import NAMES  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

RNG = np.random.default_rng(2)
LARGEST = np.finfo(np.float64).max
ROWS = 60
COLUMNS = {
    "near": RNG.uniform(0.9e308, 1.1e308, ROWS),
    "wide": np.r_[RNG.uniform(-1.0, 1.0, ROWS - 2) * 1.7e308, -LARGEST, LARGEST],
    "beside": RNG.uniform(-1e200, 1e200, ROWS),
    "constant": np.full(ROWS, LARGEST),
    "small": RNG.normal(0.0, 1e-200, ROWS),
    "plain": RNG.normal(5.0, 2.0, ROWS),
}
KINDS: dict[str, Any] = {
    **{k: k for k in NAMES},
    "chain": ["log1p", "z_score"],
    "long_chain": ["asinh", "max_abs"],
}


def _scaled(analyze: Any, option: dict[str, Any]) -> np.ndarray:
    group = Group.model_validate({"name": "g", "columns": list(COLUMNS), **option})

    def function(rows: np.ndarray) -> tf.Tensor:
        columns: dict[str, Any] = {n: tf.constant(x[rows]) for n, x in COLUMNS.items()}
        # A missing value, and ones that the analysis lacks: only the second data has them.
        if len(rows) == ROWS:
            more = tf.constant([np.nan, LARGEST, -LARGEST, 1e160, 0.0], tf.float64)
            columns |= {n: tf.concat([columns[n], more], 0) for n in COLUMNS}
        dense = DenseColumns(columns, numbers=list(COLUMNS), texts=[])
        return scaled([ResolvedGroup(group, tuple(COLUMNS))], dense)[0].values

    every = np.arange(ROWS)
    return analyze(function, np.array_split(every, 2), every).numpy()


def test_every_result_is_finite(analyze: Any) -> None:
    for impute in ["mean", "median", "most_frequent"]:
        for kind in KINDS:
            found = _scaled(analyze, {"scale": KINDS[kind], "impute": impute})
            assert np.isfinite(found).all(), (kind, impute)
    for kind in ("min_max", "max_abs", "robust", "gaussian"):
        option = {"scale": kind, "clip": {"quantiles": [0.1, 0.9]}}
        assert np.isfinite(_scaled(analyze, option)).all()


def test_min_max_and_robust_are_exact(analyze: Any) -> None:
    scaled_by = {kind: _scaled(analyze, {"scale": kind})[:ROWS] for kind in ("min_max", "robust")}
    for at, (name, column) in enumerate(COLUMNS.items()):
        if name == "constant":
            continue
        x = column.astype(np.longdouble)
        found = scaled_by["min_max"][:, at]
        np.testing.assert_allclose(found, (x - x.min()) / (x.max() - x.min()), atol=1e-6)
        low, middle, high = np.quantile(np.sort(x), [0.25, 0.5, 0.75], method="inverted_cdf")
        # The sketch takes one of the two middle values: allow for the rank of a row.
        found = scaled_by["robust"][:, at]
        np.testing.assert_allclose(found, (x - middle) / (high - low), atol=0.1)
