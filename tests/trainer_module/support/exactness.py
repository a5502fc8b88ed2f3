"""A cell of the exactness matrix against full batches, and the cells that are always checked.

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
import tensorflow as tf
from cells import Cell

TOLERANCE = {"float64": 1e-12, "float32": 2e-6}
TOLERANCE_OF_UPDATES = {"mixed_bfloat16": 1e-2, "mixed_float16": 1.5e-3}

# fmt: off
_CELLS = [
    Cell("one_device", "binary", "adam", 2, "ragged", "random", ema_momentum=0.9, per_pass=4,
         expected_rows=8),
    Cell("none", "multiclass", "adamw", 64, "short_last", "some_zero", schedule=True,
         expected_rows=1),
    Cell("none", "tokens", "lion", 1, "ragged", "some_zero", clip_norm=0.3, per_pass=4),
    Cell("one_device", "layer_norm", "sgd", 1, "fewer_than_replicas", "all_zero", None, 0.9,
         expected_rows=1),
    Cell("none", "separable_convolution", "adamw", 4, "short_last", "random", reduction="mean",
         per_pass=2, expected_rows=5),
    Cell("one_device", "two_in_two_out", "adam", 3, "even", "some_zero", 0.3, schedule=True,
         expected_rows=3),
    Cell("none", "mlp", "sgd", 5, "ragged", "none", 0.3, precision="float32",
         expected_rows=11),
    Cell("one_device", "embeddings", "sgd", 4, "ragged", "some_zero", precision="mixed_bfloat16",
         expected_rows=4),
    Cell("none", "tokens", "sgd", 5, "ragged", "random", None, 0.9, precision="mixed_float16"),
    Cell("mirrored3", "binary", "adamw", 4, "even", "none", clip_norm=0.3),
    Cell("mirrored2", "multiclass", "adam", 4, "short_last", "all_zero", ema_momentum=0.9,
         per_pass=4),
    Cell("mirrored3", "own_loss", "sgd", 3, "fewer_than_replicas", "some_zero", clip_norm=0.3),
    Cell("mirrored2", "regularised", "adamw", 1, "fewer_than_replicas", "none", 0.3, 0.9,
         schedule=True, expected_rows=1),
    Cell("mirrored2", "embeddings", "adam", 1, "short_last", "some_zero", 0.3, 0.9, per_pass=2,
         expected_rows=4),
    Cell("mirrored2", "tokens", "adamw", 5, "ragged", "some_zero", 0.3, 0.9, expected_rows=9),
    Cell("mirrored2", "layer_norm", "lion", 64, "fewer_than_replicas", "random", expected_rows=1),
    Cell("mirrored2", "two_in_two_out", "adamw", 3, "fewer_than_replicas", "some_zero", None, 0.9,
         reduction="mean"),
    Cell("mirrored2", "mlp", "sgd", 5, "ragged", "none", None, 0.9, precision="mixed_bfloat16"),
    Cell("mirrored3", "multiclass", "sgd", 3, "ragged", "some_zero", 0.3,
         precision="mixed_float16", expected_rows=9),
]
# fmt: on
SELECTION = [*_CELLS, *(dataclasses.replace(cell, jit_compile=True) for cell in _CELLS)]


def distance(found, expected, first) -> float:
    """Norm of the updates' difference, relative to the norm of the updates."""
    difference = [a - b for a, b in zip(found, expected, strict=True)]
    updates = [a - b for a, b in zip(expected, first, strict=True)]
    return float(tf.linalg.global_norm(difference) / tf.linalg.global_norm(updates))


def check(cell, strategies):
    """Trains a cell as it says and compares with its full batch."""
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
