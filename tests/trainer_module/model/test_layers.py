"""Hinges, pooled embeddings, and pruning by PrunedDense, the callback Prune and `model.sparsity`.

References: NumPy; of training, full_batch.train (one device, one full batch, float64) to 1e-12; of
a saved model the model itself, bit for bit.
"""

from __future__ import annotations

import re
from statistics import NormalDist

import exactness
import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from cells import Cell
from killed_loop import EndsAt
from text_layout import layout_of_texts

from trainer_module import (
    Checkpoints,
    ModelContext,
    Prune,
    PrunedDense,
    TrainerConfig,
    TrainingLoop,
    TrainStep,
)
from trainer_module.loop.run_fingerprint import _model_fingerprint, check_fingerprint
from trainer_module.model.default_model import _pruning_schedule, default_model
from trainer_module.model.layers import Hinges, PooledEmbedding
from trainer_module.model.plan import resolve


def test_a_number_and_its_distance_beyond_each_knot():
    """Reference: the formula in NumPy; equal bit for bit, float32 throughout."""
    layer = Hinges(3)
    layer.build((None, 2))
    knots = np.array([[-1.0, 0.25, 2.0], [0.0, 0.5, 1.0]], np.float32)
    layer.knots.assign(knots)
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    each = np.concatenate([x[:, :, None], np.maximum(x[:, :, None] - knots, 0)], axis=2)
    found = keras.ops.convert_to_numpy(layer(x))
    np.testing.assert_array_equal(found, each.reshape(50, 8))
    assert layer(keras.Input((2,))).shape == (None, 8)


def test_knots_begin_at_quantiles_of_the_normal_distribution():
    """Reference: the share of the standard normal distribution below each, within 1e-6."""
    layer = Hinges(8)
    layer.build((None, 3))
    for knots in keras.ops.convert_to_numpy(layer.knots):
        shares = [NormalDist().cdf(float(knot)) for knot in knots]
        np.testing.assert_allclose(shares, (np.arange(8) + 0.5) / 8, atol=1e-6)


IDS = np.array([[1, 0, 4], [3, 4, 4], [2, 2, 4]])
WEIGHTS = np.array([[0.8, 0.6, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.0]], np.float32)


def as_matrix(ids, weights, count):
    """Ids and weights as one column per id."""
    matrix = np.zeros((len(ids), count))
    np.add.at(matrix, (np.arange(len(ids))[:, None], ids), weights)
    return matrix


def test_output_is_a_product_with_the_matrix_of_weights():
    """Reference: NumPy in float64; the gradient is the transposed product. Tolerance 1e-6."""
    layer = PooledEmbedding(5, 4)
    with tf.GradientTape() as tape:
        found = layer([IDS, WEIGHTS])
        loss = keras.ops.sum(found * np.arange(4.0, dtype="float32"))
    matrix = as_matrix(IDS, WEIGHTS, 5)
    np.testing.assert_allclose(found, matrix @ np.asarray(layer.table), atol=1e-6)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    expected = matrix.T @ np.tile(np.arange(4.0), (3, 1))
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def _context(layout):
    spec = {}
    for column in layout.columns:
        dtype = tf.int64 if column.is_id else tf.float32
        width = len(layout.of(column.output))
        spec[column.output] = tf.io.FixedLenFeature([width], dtype)
    return ModelContext(
        feature_spec=spec,
        transformed_schema=None,
        layout=layout,
        label="y",
        label_kind="binary",
        outputs=1,
        id_sizes={},
        config=TrainerConfig.model_validate({"label": "y", "model": {"knots": 2}}),
    )


def _features(context):
    """Two rows: x, then the terms 2 and 0 of `a`, no term of `b`; and a row without terms."""
    values = {
        "x": [0.5, -1.0],
        "a_term_0": [2, 4],
        "a_term_1": [0, 4],
        "a_weight_0": [0.8, 0.0],
        "a_weight_1": [0.6, 0.0],
        "c": [1, 2],
        "b_term_0": [8, 8],
        "b_weight_0": [0.0, 0.0],
    }
    return {
        name: np.stack([values[column.name] for column in context.layout.of(name)], axis=1).astype(
            spec.dtype.as_numpy_dtype
        )
        for name, spec in context.feature_spec.items()
    }


@pytest.mark.parametrize("packed", [True, False])
def test_the_default_model_pools_each_text(tmp_path, packed):
    """Its dense layers see x, the embedding of c, and the sums of the texts; only x bends."""
    context = _context(layout_of_texts(packed=packed))
    model = default_model(context)
    pools = [layer for layer in model.layers if isinstance(layer, PooledEmbedding)]
    assert [(pool.name, pool.count) for pool in pools] == [("text_0", 5), ("text_1", 9)]
    table = model.get_layer("embeddings")
    assert table.sizes == [3]
    first = next(layer for layer in model.layers if isinstance(layer, keras.layers.Dense))
    assert first.kernel.shape[0] == 1 + table.size + pools[0].size + pools[1].size + _bends(model)
    features = _features(context)
    seen = keras.Model(model.input, pools[0].output)(features)
    expected = 0.8 * np.asarray(pools[0].table)[2] + 0.6 * np.asarray(pools[0].table)[0]
    np.testing.assert_allclose(seen, [expected, np.zeros_like(expected)], atol=1e-6)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(features), model(features), atol=1e-6)


def _bends(model):
    hinges = model.get_layer("hinges")
    assert hinges.input.shape[1] == 1  # x, and no weight of a term
    return hinges.output.shape[1]


X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def expected_sparsity(step: int, final: float, begin: int, end: int, every: int) -> float:
    """The share after the last update that is not after `step`, by a loop over the steps."""
    share = 0.0
    for t in range(begin, min(step, end) + 1):
        if (t - begin) % every == 0 or t == end:
            share = final + (0.0 - final) * (1 - (t - begin) / (end - begin)) ** 3
    return share


def test_the_schedule_is_that_of_zhu_and_gupta():
    for schedule in [(0.8, 0, 20, 5), (0.5, 7, 20, 4), (0.9, 3, 4, 100)]:
        _, begin, end, every = schedule
        due = sorted({*range(begin, end, every), end})
        for step in range(30):
            layer = PrunedDense(10, *schedule)
            layer.build((None, 100))
            layer.prune(step)
            removed = np.count_nonzero(layer.mask.numpy() == 0)
            assert removed == round(1000 * expected_sparsity(step, *schedule))
            later = [t for t in due if t > step]
            assert layer.steps_until_due(step) == (later[0] - step if later else None)


def test_the_smallest_weights_are_removed_and_stay_removed():
    layer = PrunedDense(6, 0.75, 0, 12, 3)
    layer.build((None, 8))
    random = np.random.default_rng(1)
    removed = np.zeros(48, bool)
    for step in [*range(14), 6]:  # a step twice, or an earlier one, changes nothing
        layer.kernel.assign(random.normal(size=(8, 6)))  # as if training had changed all of them
        sizes = np.abs(layer.kernel.numpy()).ravel()
        count = round(expected_sparsity(step, 0.75, 0, 12, 3) * 48)
        candidates = [i for i in np.argsort(sizes) if not removed[i]]
        removed[candidates[: max(0, count - removed.sum())]] = True
        layer.prune(step)
        np.testing.assert_array_equal(layer.mask.numpy().ravel() == 0, removed)
    assert removed.sum() == 36
    kernel = np.where(removed.reshape(8, 6), 0, layer.kernel.numpy())
    np.testing.assert_allclose(layer(X), X @ kernel, atol=1e-5)


def pruned_loop(folder, *callbacks):
    """A loop of 4 steps per epoch, and its layer of 32 weights."""
    layer = PrunedDense(4, 0.75, 2, 11, 3, name="pruned")
    model = keras.Sequential([keras.Input((8,)), layer, keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.05, momentum=0.9), "mse", micro_batch_size=8)
    saved = Checkpoints(str(folder), step, every_steps=5)
    loop = TrainingLoop(
        step,
        (X, Y),
        batch_size=16,
        epochs=4,
        callbacks=[Prune(model), *callbacks],
        checkpoints=saved,
        progress=False,
        steps_per_loop=100,
    )
    return loop, layer


def test_masks_are_updated_when_they_are_due_also_after_a_kill(tmp_path):
    """After the checkpoint of step 5. Reference: a run in one piece, bit for bit."""
    keras.utils.set_random_seed(0)
    whole, layer = pruned_loop(tmp_path / "whole")
    whole.fit()
    assert np.mean(layer.mask.numpy() == 0) == 0.75
    keras.utils.set_random_seed(0)
    with pytest.raises(KeyboardInterrupt):
        pruned_loop(tmp_path / "killed", EndsAt(8))[0].fit()
    keras.utils.set_random_seed(7)  # other initial weights: the checkpoint replaces them
    again, _ = pruned_loop(tmp_path / "killed")
    again.fit()
    weights = (loop.train_step.model.get_weights() for loop in (whole, again))
    for expected, found in zip(*weights, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_prune_needs_a_pruned_layer():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)], name="plain")
    with pytest.raises(ValueError, match="'plain' has no built PrunedDense"):
        Prune(model)
    unbuilt = keras.Sequential([PrunedDense(4, 0.5, 0, 10)], name="unbuilt")
    with pytest.raises(ValueError, match="'unbuilt' has no built PrunedDense"):
        Prune(unbuilt)


def network() -> keras.Model:
    """5 features -> 1 value."""
    features = keras.Input((5,), dtype=keras.config.floatx())
    hidden = PrunedDense(4, 0.5, 0, 10, 5, activation="tanh", name="tested")(features)
    return keras.Model(features, keras.layers.Dense(1, name="head")(hidden))


def test_a_saved_model_is_the_same_bit_for_bit(tmp_path):
    """With half of the mask 0."""
    model, random, rows = network(), np.random.default_rng(2), full_batch.batch("mlp")[0]
    for variable in model.variables:
        value = random.normal(size=variable.shape)
        variable.assign(value > 0 if variable.name == "mask" else value)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("tested").get_config() == model.get_layer("tested").get_config()
    assert [v.path for v in loaded.variables] == [v.path for v in model.variables]
    np.testing.assert_array_equal(loaded(rows), model(rows))


def test_windows_and_replicas_are_exact(strategies, monkeypatch):
    monkeypatch.setitem(full_batch.MODELS, "mlp", network)
    cell = Cell("mirrored2", "mlp", "adamw", 2, "fewer_than_replicas", "some_zero")
    exactness.check(cell, strategies)


def test_bad_arguments_are_reported():
    for arguments, fact in [
        ((4, 1.0, 0, 10), "sparsity=1.0"),
        ((4, 0.5, 10, 10), "begin_step=10, end_step=10"),
        ((4, 0.5, 0, 1.5), "end_step=1.5"),
        ((4, 0.5, 0, 10, 0), "every=0"),
    ]:
        with pytest.raises(ValueError, match=re.escape(fact)):
            PrunedDense(*arguments)


def pruned_model(total_steps=100, **settings):
    """The model of the plan for a `model` section, as in a new process."""
    config = TrainerConfig(model={"hidden_units": (8, 4), **settings})
    spec = {"numbers": tf.io.FixedLenFeature([6], tf.float32)}
    context = ModelContext(spec, None, None, "y", "binary", 1, {}, config)
    keras.utils.clear_session(free_memory=False)  # the names; a collection takes seconds
    return resolve(config, label_kind="binary").build(context, total_steps)[0]


def test_pruning_ends_at_the_half_of_the_run():
    for total_steps in (1, 2, 19, 20, 1000):
        begin, end, every = _pruning_schedule(total_steps)
        assert 0 <= begin < end <= max(1, total_steps // 2)
        assert (end - begin) / every <= 40
        model = pruned_model(total_steps, sparsity=0.75)
        layers = [layer for layer in model.layers if isinstance(layer, PrunedDense)]
        assert [(each.end_step, each.sparsity) for each in layers] == [(end, 0.75)] * 2
        for each in layers:
            each.prune(total_steps)
            assert np.mean(each.mask.numpy() == 0) == 0.75
    with pytest.raises(ValueError, match=r"total_steps=0: give ModelContext"):
        pruned_model(0, sparsity=0.75)


def test_a_longer_run_may_prune_by_a_longer_schedule():
    """As it may have another learning-rate schedule; another sparsity is another run."""

    def facts(**settings):
        model = pruned_model(**settings)
        return {"model": _model_fingerprint(model), "callbacks": {"0 Prune": Prune(model).facts()}}

    before = facts(total_steps=100, sparsity=0.5)
    found = check_fingerprint(before, facts(total_steps=200, sparsity=0.5), path="", longer=True)
    assert any("end_step was 50 and is 100" in line for line in found)
    with pytest.raises(ValueError, match=r"sparsity was 0\.5 and is 0\.6"):
        check_fingerprint(before, facts(sparsity=0.6), path="", longer=True)
