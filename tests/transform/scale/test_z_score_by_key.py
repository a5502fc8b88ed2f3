"""Two columns of keys and four columns between them, against NumPy; tolerance 1e-6 (float32)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.grouped import ResolvedGroup  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.spec.group import Group  # noqa: E402
from transform.steps.numbers import scaled  # noqa: E402

ROWS = 40
RNG = np.random.default_rng(6)
KEYS = {"town": RNG.choice(["a", "b", ""], ROWS), "day": RNG.choice(["1", "2"], ROWS)}
BY = {"w": "town", "x": "day", "y": "day", "z": "town"}
COLUMNS = {name: RNG.normal(RNG.normal(), 3.0, ROWS) for name in BY}


def test_each_column_is_scaled_by_its_own_keys(analyze: Any) -> None:
    groups = [
        ResolvedGroup(
            Group.model_validate({"name": n, "columns": n, "scale": {"z_score": {"by": by}}}), (n,)
        )
        for n, by in BY.items()
    ]

    def function(rows: slice) -> Any:
        columns: dict[str, Any] = {n: tf.constant(x[rows]) for n, x in COLUMNS.items()}
        columns |= {n: tf.constant(keys[rows].tolist()) for n, keys in KEYS.items()}
        dense = DenseColumns(columns, numbers=list(BY), texts=list(KEYS))
        return scaled(groups, dense)[0].values

    found = analyze(function, [slice(0, 13), slice(13, ROWS)], slice(0, ROWS)).numpy()
    for at, (name, by) in enumerate(BY.items()):
        for key in np.unique(KEYS[by]):
            mine = KEYS[by] == key
            x = COLUMNS[name][mine]
            expected = (x - x.mean()) / x.std()
            np.testing.assert_allclose(found[mine, at], expected, rtol=1e-6, atol=1e-6)
