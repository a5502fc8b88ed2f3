"""The exactness matrix: every value of every axis, by steps on windows against full batches.

Reference and tolerances: support/exactness.py.
"""

from __future__ import annotations

import dataclasses

import cells
import full_batch
import pytest
from cells import Cell
from exactness import SELECTION, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("cell", SELECTION, ids=str)
def test_the_selection(strategies, cell):
    check(cell, strategies)


def option(value):
    return st.sampled_from([None, value])


WHOLE_SPACE = st.builds(
    Cell,
    strategy=st.sampled_from(["none", "one_device"]),
    kind=st.sampled_from(sorted(full_batch.MODELS)),
    optimizer=st.sampled_from(sorted(cells.OPTIMIZERS)),
    micro_batch_size=st.integers(1, 14),
    rows=st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple),
    weights=st.sampled_from(cells.WEIGHTS),
    clip_norm=option(0.3),
    ema_momentum=option(0.9),
    jit_compile=st.sampled_from([False, False, False, True]),
    schedule=st.booleans(),
    reduction=st.sampled_from(["weighted_mean", "mean"]),
    per_pass=st.sampled_from([1, 2, 4]),
    expected_rows=st.sampled_from([None, 1, 12]),
)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(cell=WHOLE_SPACE, narrow=st.booleans())
def test_any_cell_on_one_device(strategies, cell, narrow):
    if narrow:
        # Clipping divides by the norm, which magnifies the rounding of float32.
        cell = dataclasses.replace(cell, precision="float32", optimizer="sgd", clip_norm=None)
    check(cell, strategies)
