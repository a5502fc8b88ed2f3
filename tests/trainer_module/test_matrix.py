"""The exactness matrix: every value of every axis, by steps on windows against full batches.

Reference: full_batch.train, one device, one full batch, plain GradientTape, float64.
Tolerance, of each variable's largest value: 1e-12 in float64, 2e-6 in float32 (SGD: Adam's and
Lion's division by the gradient's size magnifies its rounding where it is near 0). In 16 bits the
norm of the updates' difference, relative to that of the updates: about one rounding of the type,
which is how far a full batch in the same precision is from float64 too.
"""

from __future__ import annotations

import dataclasses

import cells
import full_batch
import pytest
import tensorflow as tf
from cells import Cell
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TOLERANCE = {"float64": 1e-12, "float32": 2e-6}
TOLERANCE_OF_UPDATES = {"mixed_bfloat16": 1e-2, "mixed_float16": 1.5e-3}

# fmt: off
SELECTION = [
    Cell("none", "mlp", "sgd", 1, "even", "none", clip_norm=0.3),
    Cell("one_device", "binary", "adam", 2, "ragged", "random", ema_momentum=0.9, per_pass=4,
         expected_rows=8),
    Cell("none", "multiclass", "adamw", 64, "short_last", "some_zero", schedule=True,
         expected_rows=1),
    Cell("one_device", "own_loss", "lion", 5, "ragged", "some_zero", 0.3, 0.9),
    Cell("none", "regularised", "adam", 3, "short_last", "random", jit_compile=True),
    Cell("one_device", "embeddings", "adamw", 4, "even", "some_zero", 0.3, 0.9, True, True),
    Cell("none", "tokens", "lion", 1, "ragged", "some_zero", clip_norm=0.3, per_pass=4),
    Cell("one_device", "layer_norm", "sgd", 1, "fewer_than_replicas", "all_zero", None, 0.9,
         expected_rows=1),
    Cell("none", "separable_convolution", "adamw", 4, "short_last", "random", reduction="mean",
         per_pass=2, expected_rows=5),
    Cell("one_device", "two_in_two_out", "adam", 3, "even", "some_zero", 0.3, schedule=True,
         expected_rows=3),
    Cell("none", "mlp", "sgd", 5, "ragged", "some_zero", 0.3, precision="float32",
         expected_rows=11),
    Cell("one_device", "embeddings", "sgd", 4, "ragged", "some_zero", precision="mixed_bfloat16",
         expected_rows=4),
    Cell("none", "tokens", "sgd", 5, "ragged", "random", None, 0.9, True,
         precision="mixed_float16"),
    Cell("mirrored2", "mlp", "lion", 64, "ragged", "random", 0.3, 0.9, schedule=True),
    Cell("mirrored3", "binary", "adamw", 4, "even", "none", clip_norm=0.3),
    Cell("mirrored2", "multiclass", "adam", 4, "short_last", "all_zero", ema_momentum=0.9,
         per_pass=4),
    Cell("mirrored3", "own_loss", "sgd", 3, "fewer_than_replicas", "some_zero", clip_norm=0.3),
    Cell("mirrored2", "regularised", "adamw", 1, "fewer_than_replicas", "none", 0.3, 0.9,
         schedule=True, expected_rows=1),
    Cell("mirrored3", "embeddings", "adam", 1, "short_last", "some_zero", 0.3, 0.9, per_pass=2,
         expected_rows=6),
    Cell("mirrored2", "embeddings", "lion", 3, "ragged", "random", jit_compile=True),
    Cell("mirrored3", "tokens", "adamw", 5, "ragged", "some_zero", 0.3, 0.9, expected_rows=9),
    Cell("mirrored2", "tokens", "sgd", 3, "even", "some_zero", jit_compile=True, reduction="mean"),
    Cell("mirrored3", "layer_norm", "lion", 64, "fewer_than_replicas", "random", expected_rows=1),
    Cell("mirrored2", "separable_convolution", "sgd", 5, "short_last", "some_zero", clip_norm=0.3,
         expected_rows=10),
    Cell("mirrored3", "two_in_two_out", "adamw", 3, "fewer_than_replicas", "some_zero", None, 0.9,
         reduction="mean"),
    Cell("mirrored3", "mlp", "sgd", 3, "ragged", "some_zero", 0.3, precision="float32"),
    Cell("mirrored2", "mlp", "sgd", 5, "ragged", "none", None, 0.9, True,
         precision="mixed_bfloat16"),
    Cell("mirrored3", "multiclass", "sgd", 3, "ragged", "some_zero", 0.3,
         precision="mixed_float16", expected_rows=9),
]
# fmt: on


def distance(found, expected, first) -> float:
    """Norm of the updates' difference, relative to the norm of the updates."""
    difference = [a - b for a, b in zip(found, expected, strict=True)]
    updates = [a - b for a, b in zip(expected, first, strict=True)]
    return float(tf.linalg.global_norm(difference) / tf.linalg.global_norm(updates))


def check(cell, strategies):
    step = cells.trained(cell, strategies[cell.strategy])
    first, weights, averages = cells.reference(cell)
    found = [(step.model.get_weights(), weights)]
    if cell.ema_momentum is not None:
        found.append(([average.numpy() for average in step.averages], averages))
    for values, expected in found:
        if cell.precision in TOLERANCE:
            assert full_batch.error(values, expected) < TOLERANCE[cell.precision]
        else:
            assert distance(values, expected, first) < TOLERANCE_OF_UPDATES[cell.precision]
    windows = cells.batches(cell)
    empty = sum(cells.weight_sum(cell, batch) == 0 for batch in windows)
    assert step.skipped == {"empty": empty, "non_finite": 0, "loss_scale": 0}
    assert int(step.optimizer.iterations.numpy()) == len(windows) - empty


@pytest.mark.parametrize("cell", SELECTION, ids=str)
def test_the_selection(strategies, cell):
    check(cell, strategies)


def cut(cell):
    """Returns how the micro-batch size divides the rows of the replicas."""
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
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cell=WHOLE_SPACE, narrow=st.booleans())
def test_any_cell_on_one_device(strategies, cell, narrow):
    if narrow:
        cell = dataclasses.replace(cell, precision="float32", optimizer="sgd")
    check(cell, strategies)
