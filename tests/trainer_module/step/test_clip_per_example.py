"""Windows with clipped rows, `TrainStep(clip_per_example=...)`.

Reference: a tape for each row in float64, clipped and weighed in NumPy. Tolerance: 1e-9.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, clipped_gradient_sum, per_example_gradients
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.stages.recompute import recompute
from trainer_module.stages.staged_model import StagedModel
from trainer_module.window import spec as passes

L = keras.layers


def make_step(model, strategy=None, *, loss="mse", clip=1.0, **options):
    options = {"micro_batch_size": 4, **options}
    optimizer = keras.optimizers.SGD(1.0)
    return TrainStep(model, optimizer, loss, strategy=strategy, clip_per_example=clip, **options)


def one_update(step, batch):
    """Return the gradient of a window, from SGD with a rate of 1."""
    before = step.model.get_weights()
    step(batch)
    return [old - new for old, new in zip(before, step.model.get_weights(), strict=True)]


def rows_of(model, kind, features, labels, weights):
    """Return ∇l_i as `[rows, parameters]`, and the weight of each row."""
    gradients, sums = [], []
    for i in range(len(weights)):
        x, y = (tf.nest.map_structure(lambda t, i=i: t[i : i + 1], t) for t in (features, labels))
        w = weights[i : i + 1]
        total = w.sum()
        if kind == "tokens":
            total = (w * (x > 0)).sum()
        if kind == "own_loss":
            total = (w * (1 + np.abs(y[:, 0]))).sum()
        sums.append(total)
        if total == 0:  # the mean over no weight is not defined
            gradients.append(np.zeros(model.count_params()))
            continue
        found = full_batch.full_batch_gradients(model, kind, x, y, w)[1]
        gradients.append(np.concatenate([np.ravel(g) for g in found]))
    return np.stack(gradients), np.array(sums)


CASES = [
    ("mlp", "mirrored2"),  # all layers by the norm identity
    ("own_loss", "none"),  # a loss with other denominators
    ("tokens", "none"),  # masks, weights by token, a tied table
]


@pytest.mark.parametrize(("kind", "strategy"), CASES)
def test_equals_a_tape_for_each_row(float64, passes_of_one, strategies, kind, strategy):
    strategy = strategies[strategy]
    with strategy.scope():
        model = full_batch.MODELS[kind]()
    features, labels, weights = full_batch.batch(kind, rows=7)
    gradients, sums = rows_of(model, kind, features, labels, weights)
    norms = np.linalg.norm(gradients, axis=1)
    clip = float(np.median(norms[norms > 0]))
    if kind == "mlp":
        labels[weights == 0] = np.nan
    with strategy.scope():
        step = make_step(model, strategy, loss=full_batch.loss_for(kind), clip=clip)
    found = np.concatenate([np.ravel(g) for g in one_update(step, (features, labels, weights))])
    factors = sums * np.minimum(1, clip / np.maximum(norms, 1e-30))
    assert full_batch.error([found], [factors @ gradients / sums.sum()]) < 1e-9


def test_chunks_of_a_micro_batch_and_masks_of_dropout(float64, monkeypatch):
    """Each row has the mask of `per_example_gradients`. `clip_norm` and the regulariser follow."""
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="float64"),
            L.LayerNormalization(),
            L.Dropout(0.5, seed=1),
            L.Dense(1, kernel_regularizer=keras.regularizers.L2(0.125)),
        ]
    )
    x, y, w = full_batch.batch("mlp")
    rows = per_example_gradients(model, "mse", x, y, chunk_size=64, random_position=(0, 0))
    flat = np.concatenate([g.numpy().reshape(len(x), -1) for g in rows], 1)
    factors = w * np.minimum(1, 0.5 / np.linalg.norm(flat, axis=1))
    kernel = model.layers[-1].kernel.numpy()
    wanted = factors @ flat / w.sum()
    wanted[10 : 10 + kernel.size] += 0.25 * kernel.ravel()
    wanted *= 0.3 / max(0.3, np.linalg.norm(wanted))
    tiny = passes.LIMITS["CPU"]._replace(bytes_at_once=1)
    monkeypatch.setitem(passes.LIMITS, "CPU", tiny)  # one row at a time
    step = make_step(model, clip=0.5, clip_norm=0.3, micro_batch_size=64)
    found = np.concatenate([np.ravel(g) for g in one_update(step, (x, y, w))])
    assert full_batch.error([found], [wanted]) < 1e-9


def test_without_weights_it_is_the_clipped_gradient_sum(float64):
    """If the micro-batches are compiled, and with recomputed activations."""
    x, y, _ = full_batch.batch("mlp")
    model = full_batch.mlp()
    total = clipped_gradient_sum(model, "mse", x, y, clip_norm=0.5, chunk_size=4)
    wanted = [g / len(x) for g in total]
    start = model.get_weights()
    compiled = make_step(model, clip=0.5, jit_compile=True)
    assert full_batch.error(one_update(compiled, (x, y)), wanted) < 1e-9
    model.set_weights(start)
    recompute(model.layers[0])
    assert full_batch.error(one_update(make_step(model, clip=0.5), (x, y)), wanted) < 1e-9


def test_float16_clips_gradients_without_the_loss_scale():
    found = {}
    for policy in ("mixed_float16", "float64"):
        with full_batch.precision(policy):
            model = full_batch.mlp()
            values = np.random.default_rng(0)
            model.set_weights([values.normal(size=w.shape) for w in model.get_weights()])
            step = make_step(model, clip=0.5)
            batch = full_batch.batch("mlp")
            gradient = one_update(step, batch)
            while not any(map(np.any, gradient)):  # until the loss scale fits
                gradient = one_update(step, batch)
            found[policy] = gradient
    assert full_batch.error(found["mixed_float16"], found["float64"]) < 0.02


def test_a_gradient_that_is_not_finite_is_not_applied(float64):
    x, y, w = full_batch.batch("mlp")
    y[w > 0] = 1e200  # its norm overflows
    step = make_step(full_batch.mlp(), non_finite="skip")
    assert not any(map(np.any, one_update(step, (x, y, w))))
    assert step.skipped["non_finite"] == 1


def test_what_has_no_gradient_of_a_row_is_rejected():
    x, y, w = full_batch.batch("mlp")
    inputs = keras.Input((5,))
    two = keras.Model(inputs, [L.Dense(1, name=name)(inputs) for name in "ab"])
    with pytest.raises(ValueError, match=r"clip_per_example=1.0 with outputs .* separate"):
        make_step(two, loss=["mse", "mse"])((x, [y, y], [w, w[::-1]]))
    with pytest.raises(ValueError, match=r"clip_per_example=1.0 .*activity_regularizer"):
        make_step(full_batch.mlp(activity_regularizer="l2"))((x, y, w))
    parts = [keras.Sequential([keras.Input((5,)), L.Dense(n)]) for n in (5, 1)]
    staged = StagedModel(parts, devices=["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match=r"clip_per_example=1.0 .*one device"):
        make_step(staged)
    with pytest.raises(ValueError, match=r"clip_per_example=1.0 with parameter servers"):
        ParameterServerStep(
            full_batch.mlp(), "sgd", "mse", cluster=None, micro_batch_size=4, clip_per_example=1.0
        )
