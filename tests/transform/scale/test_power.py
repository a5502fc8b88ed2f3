"""Yeo and Johnson's power against scikit-learn and NumPy in float64.

The power is within half a step of the grid, 0.02, of scikit-learn's PowerTransformer (where that
one's is from -2 to 4); given the power, values are those of NumPy to 1e-6, and mean and deviation 0
and 1 to 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import yeojohnson
from sklearn.preprocessing import PowerTransformer

tf = pytest.importorskip("tensorflow")

from transform import compat  # noqa: E402
from transform.analyzers.moments import (  # noqa: E402
    column_statistics,
    fitted_powers,
    yeo_johnson,
)

ROWS = 3000
COLUMNS = {
    "normal": lambda rng: rng.normal(3.0, 2.0, ROWS),
    "lognormal": lambda rng: rng.lognormal(1.0, 1.2, ROWS),
    "exponential": lambda rng: rng.exponential(5.0, ROWS),
    "left": lambda rng: 20.0 - rng.gamma(2.0, 3.0, ROWS),
    "negative": lambda rng: -rng.lognormal(0.5, 1.0, ROWS),
    "both_signs": lambda rng: rng.gamma(1.5, 4.0, ROWS) - 3.0,
    "t3": lambda rng: rng.standard_t(3, ROWS),
    "small": lambda rng: rng.gamma(2.0, 1.0, ROWS) * 1e-3,
    "counts": lambda rng: rng.poisson(2.0, ROWS).astype(float),
    "square_root": lambda rng: rng.normal(6.0, 1.0, ROWS) ** 2,
}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each analyzer is over all rows, which are one batch."""

    def analyzed(combiner: Any, *tensors: Any, name: str) -> tuple[Any, ...]:
        batch = [tensor.numpy() for tensor in tensors]
        merged = combiner.add_input(combiner.create_accumulator(), batch)
        return tuple(tf.constant(output) for output in combiner.extract_output(merged))

    monkeypatch.setattr(compat, "combine", analyzed)


def fitted(x: np.ndarray) -> Any:
    values = tf.constant(x)
    return fitted_powers(values, column_statistics(values))


def test_powers_are_those_of_scikit_learn(at_once: None) -> None:
    rng = np.random.default_rng(3)
    x = np.stack([make(rng) for make in COLUMNS.values()], axis=1)
    expected = PowerTransformer().fit(x)
    x[rng.random(x.shape) < 0.1] = np.nan
    for i in range(x.shape[1]):  # missing values enter nothing
        present = x[~np.isnan(x[:, i]), i]
        expected.lambdas_[i] = PowerTransformer().fit(present[:, None]).lambdas_[0]
    found = fitted(x)
    inside = np.abs(expected.lambdas_ - 1.0) < 3.0
    assert inside.sum() >= len(COLUMNS) - 1
    apart = np.abs(found.power.numpy() - expected.lambdas_)[inside]
    assert dict(zip(np.array(list(COLUMNS))[inside], apart > 0.021, strict=True)) == dict.fromkeys(
        np.array(list(COLUMNS))[inside], False
    )
    assert (np.abs(found.power.numpy() - 1.0) <= 3.0).all()
    for i, power in enumerate(found.power.numpy()):
        values = yeojohnson(x[~np.isnan(x[:, i]), i], power)
        assert found.mean.numpy()[i] == pytest.approx(values.mean(), rel=1e-9)
        assert found.variance.numpy()[i] == pytest.approx(values.var(), rel=1e-9)


def test_hard_columns_give_numbers(at_once: None) -> None:
    """Huge, far from 0, of two values, constant, without a value."""
    rng = np.random.default_rng(0)
    x = np.stack(
        [
            rng.lognormal(200.0, 50.0, 500),
            rng.choice([-1.0, 1.0], 500) * 1e300,
            1e9 + rng.normal(size=500),
            1e9 + rng.integers(0, 3, 500),
            rng.integers(0, 2, 500).astype(float),
            np.full(500, 7.0),
            np.full(500, np.nan),
        ],
        axis=1,
    )
    found = fitted(x)
    for values in found:
        assert np.isfinite(values.numpy()).all()
    assert found.power.numpy()[5:].tolist() == [1.0, 1.0]
    assert found.power.numpy()[0] == pytest.approx(0.0, abs=0.02)  # a logarithm
    for i in range(5):
        y = yeo_johnson(tf.constant(x[:, i]), found.power[i]).numpy()
        y = (y - found.mean.numpy()[i]) / np.sqrt(found.variance.numpy()[i])
        assert abs(y.mean()) < 1e-6
        assert y.std() == pytest.approx(1.0, abs=1e-6)
