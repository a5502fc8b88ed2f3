"""The exactness matrix: every value of every axis, by steps on windows against full batches.

Reference and tolerances: support/exactness.py.
"""

from __future__ import annotations

import dataclasses

import cells
import full_batch
import pytest
from cells import Cell
from exactness import SELECTION, TOLERANCE, TOLERANCE_OF_UPDATES, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("cell", SELECTION, ids=str)
def test_the_selection(strategies, cell):
    check(cell, strategies)


def cut(cell):
    """Return how the micro-batch size divides the rows of the replicas."""
    replicas = {"mirrored2": 2, "mirrored3": 3}.get(cell.strategy, 1)
    parts = {n * (i + 1) // replicas - n * i // replicas for n in cells.ROWS[cell.rows]
             for i in range(replicas)}  # fmt: skip
    if cell.micro_batch_size == 1:
        return "1"
    if cell.micro_batch_size > max(parts):
        return "larger"
    return "a divisor" if all(n % cell.micro_batch_size == 0 for n in parts) else "no divisor"


@pytest.mark.parametrize("several_replicas", [False, True])
def test_the_selection_holds_every_value(several_replicas):
    names = ("mirrored2", "mirrored3") if several_replicas else ("none", "one_device")
    chosen = [cell for cell in SELECTION if cell.strategy in names]
    seen = {
        field.name: {getattr(cell, field.name) for cell in chosen}
        for field in dataclasses.fields(Cell)
    }
    assert {cut(cell) for cell in chosen} == {"1", "a divisor", "no divisor", "larger"}
    assert seen["strategy"] == set(names)
    assert seen["kind"] == set(full_batch.MODELS)
    assert seen["optimizer"] == set(cells.OPTIMIZERS)
    assert seen["rows"] == set(cells.ROWS)
    assert seen["weights"] == set(cells.WEIGHTS)
    assert seen["precision"] == {*TOLERANCE, *TOLERANCE_OF_UPDATES}
    assert seen["reduction"] == {"weighted_mean", "mean"}
    assert len(seen["per_pass"]) > 2
    assert len(seen["expected_rows"]) > 2
    for option in ("clip_norm", "ema_momentum", "jit_compile", "schedule"):
        assert len(seen[option]) == 2, option


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
        cell = dataclasses.replace(cell, precision="float32", optimizer="sgd")
    check(cell, strategies)
