"""What holds for every scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytest.importorskip("tensorflow")

from transform.scale.pointwise import Pointwise
from transform.scale.table import CHAINABLE, NAMES, SCALERS

ScaledBy = Callable[..., np.ndarray]


@pytest.mark.parametrize("kind", NAMES)
def test_what_a_scaler_learns_decides_what_a_constant_becomes(
    scaled_by: ScaledBy, kind: str
) -> None:
    """Where it learns, unseen values are 0 too: nothing is known of the column's unit."""
    constant, unseen = np.full([4, 1], 7.0), np.asarray([[7.0], [-1.0], [1e300]])
    found = scaled_by(kind, constant, unseen)
    assert found.any() == (not SCALERS[kind].requires)


@settings(max_examples=60)
@given(
    st.sampled_from(NAMES),
    hnp.arrays(
        np.float64, st.integers(1, 20), elements=st.floats(-3e38, 3e38, allow_subnormal=False)
    ),
)
def test_every_scaler_gives_a_finite_number(
    scaled_by: ScaledBy, kind: str, values: np.ndarray
) -> None:
    assert np.isfinite(scaled_by(kind, values[:, np.newaxis])).all()


@pytest.mark.parametrize("kind", NAMES)
def test_a_column_is_scaled_by_itself(scaled_by: ScaledBy, kind: str) -> None:
    x = np.random.default_rng(0).normal(3.0, 50.0, [40, 3]) * [1.0, 1e-20, 1e20]
    alone = np.concatenate([scaled_by(kind, x[:, [i]]) for i in range(3)], axis=1)
    # NumPy adds the rows of one column in another order than those of three.
    np.testing.assert_allclose(scaled_by(kind, x), alone, rtol=1e-12, atol=1e-12)


def test_every_scale_of_the_spec_has_a_record() -> None:
    chains = {f"{f}+{last}" for f in get_args(Pointwise) for last in CHAINABLE}
    assert {*NAMES, *chains, "z_score_by_key"} == set(SCALERS)
    assert all(name == scaler.name for name, scaler in SCALERS.items())
