"""The kinds, low rank and sparsity of the default model's hidden layers.

References: the formulas in NumPy, and a tape over the full batch with the members' losses one by
one; both in float64 to 1e-12.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    EarlyStopping,
    Prune,
    StagedModel,
    TrainerConfig,
    TrainStep,
    split_model,
)
from trainer_module.layers.low_rank_dense import LowRankDense
from trainer_module.layers.pruned_dense import PrunedDense
from trainer_module.loop.callbacks import EpochEnd
from trainer_module.loop.run_fingerprint import check_fingerprint, model_fingerprint
from trainer_module.losses.member_loss import MemberLoss, member_loss
from trainer_module.losses.weighted_loss import weighted_loss
from trainer_module.model.hidden_layers import hidden_layers, pruning_schedule
from trainer_module.model.member_layers import MemberDense, MemberMean
from trainer_module.model.model_context import ModelContext
from trainer_module.model.plan import resolve
from trainer_module.options.loop_options import LoopOptions
from trainer_module.options.model_config import ModelConfig
from trainer_module.options.step_options import StepOptions

L = keras.layers
OPTIONS = {
    "residual": {"kind": "residual", "hidden_units": (4, 3), "activation": "tanh"},
    "tabm": {"kind": "tabm", "hidden_units": (4, 3), "activation": "tanh", "members": 3},
    "low_rank_tabm": {"kind": "tabm", "hidden_units": (4,), "low_rank": 1, "members": 2},
    "sparse_residual": {"kind": "residual", "hidden_units": (4,), "sparsity": 0.5},
}


def build(name: str) -> keras.Model:
    """5 features -> 1 value, with random weights and half of each mask 0."""
    config = ModelConfig(**OPTIONS[name])
    features = keras.Input((5,), dtype=keras.config.floatx())
    hidden = hidden_layers(features, config, total_steps=10)
    if config.kind == "tabm":
        output = MemberMean(name="mean")(MemberDense(1)(hidden))
    else:
        output = L.Dense(1)(hidden)
    model = keras.Model(features, output)
    random = np.random.default_rng(2)
    for variable in model.variables:
        value = random.normal(0, 0.7, variable.shape)
        variable.assign(value > 0 if variable.name == "mask" else value)
    return model


def normal(x, scale, shift):
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / spread * scale + shift


def residual(x, weights):
    """The blocks of Gorishniy et al. (2021), LayerNorm for BatchNorm, in NumPy."""
    take = iter(weights)
    x = x @ next(take) + next(take)
    for _ in range(2):
        inner = np.tanh(normal(x, next(take), next(take)) @ next(take) + next(take))
        x = x + inner @ next(take) + next(take)
    x = np.tanh(normal(x, next(take), next(take)))
    return x @ next(take) + next(take)


def tabm(x, weights):
    """The members one by one, each with its kernel W * outer(r, s), in NumPy."""
    r_1, w_1, s_1, b_1, r_2, w_2, s_2, b_2, head, last = weights
    found = []
    for k in range(3):
        hidden = np.tanh(x @ (w_1 * np.outer(r_1[k], s_1[k])) + b_1[k])
        hidden = np.tanh(hidden @ (w_2 * np.outer(r_2[k], s_2[k])) + b_2[k])
        found.append(hidden @ head[k] + last[k])
    return np.stack(found, axis=1)


def test_residual_blocks_are_those_of_the_paper(float64):
    model, x = build("residual"), full_batch.batch("mlp")[0]
    np.testing.assert_allclose(model(x), residual(x, model.get_weights()), rtol=1e-12)


def test_members_share_their_kernels(float64):
    model, x = build("tabm"), full_batch.batch("mlp")[0]
    expected = tabm(x, model.get_weights())
    np.testing.assert_allclose(model(x, training=True), expected, rtol=1e-11)
    np.testing.assert_allclose(model(x), expected.mean(axis=1), rtol=1e-11)


def test_only_the_first_vectors_of_the_members_differ_at_the_start():
    features = keras.Input((50,))
    model = keras.Model(features, hidden_layers(features, ModelConfig(kind="tabm")))
    scales = [v.numpy() for v in model.variables if v.name == "scale"]
    assert scales[0].shape == (16, 50)
    assert set(scales[0].ravel()) == {-1.0, 1.0}
    assert 0.4 < (scales[0] > 0).mean() < 0.6
    assert all((scale == 1).all() for scale in scales[1:])


def reference(model, batches, rate):
    """SGD on Σ w_i mean_j (y_i - p_ij)² / Σ w_i of each full batch, by one tape."""
    for x, y, w in batches:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            members = tf.unstack(outputs, axis=1) if outputs.shape.rank == 3 else [outputs]
            losses = [tf.reduce_sum(w * (y - each)[:, 0] ** 2) for each in members]
            loss = tf.add_n(losses) / len(members) / tf.reduce_sum(w)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(rate * gradient)
    return model.get_weights()


@pytest.mark.parametrize(
    ("placed", "name"),
    [
        ("none", "residual"),
        ("none", "low_rank_tabm"),
        ("mirrored2", "sparse_residual"),
        ("stages", "tabm"),
    ],
)
def test_windows_replicas_and_stages_are_exact(strategies, float64, placed, name):
    """Ragged windows in micro-batches of 3 rows."""
    batches = [full_batch.batch("mlp", rows, seed) for seed, rows in enumerate((11, 7))]
    expected = reference(build(name), batches, 0.05)
    strategy = strategies["none" if placed == "stages" else placed]
    with strategy.scope():
        model = build(name)
        optimizer = keras.optimizers.SGD(0.05)
    if placed == "stages":
        cut = next(layer.name for layer in model.layers if "dense" in layer.name)
        model = StagedModel(split_model(model, [cut]), devices=["CPU:0", "CPU:1"])
    loss = member_loss(weighted_loss("mse"))
    step = TrainStep(model, optimizer, loss, micro_batch_size=3, strategy=strategy)
    for batch in batches:
        step(batch)
    assert full_batch.error(model.get_weights(), expected) < 1e-12


@pytest.mark.parametrize("name", ["low_rank_tabm", "sparse_residual"])
def test_a_saved_and_an_exported_model_are_the_same(name, tmp_path):
    model, x = build(name), full_batch.batch("mlp")[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    np.testing.assert_array_equal(loaded(x, training=True), model(x, training=True))
    model.export(str(tmp_path / "export"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(exported.serve(x), model(x), rtol=1e-5, atol=1e-6)


def absolute(labels, outputs, sample_weight):
    """A loss function of sums."""
    weights = tf.ones_like(labels[:, 0]) if sample_weight is None else sample_weight
    error = tf.abs(tf.cast(labels, outputs.dtype) - outputs)[:, 0]
    return tf.reduce_sum(weights * error), tf.reduce_sum(weights)


@pytest.mark.parametrize(
    "loss",
    [
        weighted_loss("binary_crossentropy", class_weight={1: 3.0}),
        weighted_loss("mse", reduction="mean"),
        absolute,
    ],
    ids=["class_weight", "mean", "function"],
)
@pytest.mark.parametrize("weighted", [True, False])
def test_the_loss_of_members_is_the_mean_of_their_losses(float64, loss, weighted):
    random = np.random.default_rng(3)
    y = tf.constant(random.integers(0, 2, (6, 1)).astype("float64"))
    outputs = tf.constant(random.uniform(size=(6, 4, 1)))
    w = tf.constant(random.uniform(size=6)) if weighted else None
    of_each = [loss(y, outputs[:, k], w) for k in range(4)]
    found = member_loss(loss)(y, outputs, w)
    np.testing.assert_allclose(found, np.mean(of_each, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(member_loss(loss)(y, outputs[:, 0], w), of_each[0])


SPEC = {
    "numbers": tf.io.FixedLenFeature([6], tf.float32),
    "id": tf.io.FixedLenFeature([1], tf.int64),
}
ROWS = {
    "numbers": np.random.default_rng(0).normal(size=(40, 6)).astype("float32"),
    "id": np.arange(40)[:, None] % 5,
}


def built(label="binary", total_steps=100, **settings):
    """(model, loss) of the plan for a `model` section, as in a new process."""
    config = TrainerConfig(model={"hidden_units": (8, 4), **settings})
    outputs = 3 if label == "multiclass" else 1
    context = ModelContext(SPEC, None, None, "y", label, outputs, {"id": (0, 5)}, config)
    keras.utils.clear_session(free_memory=False)  # the names; a collection takes seconds
    keras.utils.set_random_seed(0)
    model, _, loss = resolve(config, label_kind=label).build(context, total_steps)
    return model, loss


def test_the_default_is_the_network_that_it_was():
    """Reference: its formula in NumPy; the names and settings that older checkpoints have."""
    model, loss = built(dropout=0.5)
    assert not isinstance(loss, MemberLoss)
    names = [layer.name for layer in model.layers[-5:]]
    assert names == ["dense", "dropout", "dense_1", "dropout_1", "outputs"]
    table, *weights = model.get_weights()
    hidden = np.concatenate([ROWS["numbers"], table[ROWS["id"][:, 0]]], axis=1)
    for kernel, bias in zip(weights[:4:2], weights[1:4:2], strict=True):
        hidden = np.maximum(hidden @ kernel + bias, 0)
    logits = hidden @ weights[4] + weights[5]
    np.testing.assert_allclose(model(ROWS), 1 / (1 + np.exp(-logits)), atol=1e-6)
    new = {"kind", "members", "low_rank", "sparsity"}
    assert not new & set(TrainerConfig().fingerprint()["model"])


@pytest.mark.parametrize("label", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("linear", [True, False])
def test_an_ensemble_predicts_the_mean_of_its_members(label, linear):
    model, loss = built(label, kind="tabm", linear=linear)
    members, mean = model(ROWS, training=True), model(ROWS)
    assert isinstance(loss, MemberLoss)
    assert members.shape == (40, 16, 3 if label == "multiclass" else 1)
    np.testing.assert_allclose(tf.reduce_mean(members, axis=1), mean, atol=1e-6)
    spread = float(tf.reduce_max(tf.math.reduce_std(members, axis=1)))
    # All members start at the linear model.
    assert spread < 1e-6 if linear else spread > 1e-3


@pytest.mark.parametrize("label", ["binary", "multiclass"])
def test_members_do_not_mix_with_as_many_rows(label):
    """keras.ops.add broadcasts [4, 4, 1] + [4, 1, 1] along the wrong axis."""
    model, _ = built(label, kind="tabm", members=4, linear=True)
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.5, variable.shape))
    four = {name: values[:4] for name, values in ROWS.items()}
    alone = [model({name: values[i : i + 1] for name, values in four.items()}) for i in range(4)]
    np.testing.assert_allclose(model(four), np.concatenate(alone), atol=1e-6)


def test_residual_blocks_start_at_the_linear_model():
    model, _ = built("regression", kind="residual", linear=True)
    assert not np.any(model(ROWS))


def test_low_rank_is_used_where_it_has_fewer_weights():
    model, _ = built(low_rank=2)
    kinds = [type(layer) for layer in model.layers if "dense" in layer.name]
    assert kinds == [LowRankDense, LowRankDense]  # 10 x 8 and 8 x 4
    model, _ = built(low_rank=4)
    kinds = [type(layer) for layer in model.layers if "dense" in layer.name]
    assert kinds == [LowRankDense, L.Dense]
    with pytest.raises(ValueError, match=r"low_rank=5 .* 10 x 8, 8 x 4\): use 4 or less"):
        built(low_rank=5)


def test_pruning_ends_at_the_half_of_the_run():
    for total_steps in (1, 2, 19, 20, 1000):
        begin, end, every = pruning_schedule(total_steps)
        assert 0 <= begin < end <= max(1, total_steps // 2)
        assert (end - begin) / every <= 40
        model, _ = built(total_steps=total_steps, sparsity=0.75)
        layers = [layer for layer in model.layers if isinstance(layer, PrunedDense)]
        assert [(each.end_step, each.sparsity) for each in layers] == [(end, 0.75)] * 2
        for each in layers:
            each.prune(total_steps)
            assert np.mean(each.mask.numpy() == 0) == 0.75
    with pytest.raises(ValueError, match=r"total_steps=0: give ModelContext"):
        built(total_steps=0, sparsity=0.75)


def test_a_longer_run_may_prune_by_a_longer_schedule():
    """As it may have another learning-rate schedule; another sparsity is another run."""

    def facts(**settings):
        model, _ = built(**settings)
        actions = {"0 Prune": Prune(model).facts()}
        rest = StepOptions(micro_batch_size=1), LoopOptions(epochs=1)
        options = {name: value for each in rest for name, value in each.fingerprint().items()}
        return {"model": model_fingerprint(model), "actions": actions, **options}

    before = facts(total_steps=100, sparsity=0.5)
    after = facts(total_steps=200, sparsity=0.5)
    found = check_fingerprint(before, after, path="folder", longer=True)
    assert any("end_step was 50 and is 100" in line for line in found)
    with pytest.raises(ValueError, match="end_step"):
        check_fingerprint(before, after, path="folder", longer=False)
    with pytest.raises(ValueError, match=r"sparsity was 0\.5 and is 0\.6"):
        check_fingerprint(before, facts(sparsity=0.6), path="folder", longer=True)


def test_early_stopping_does_not_count_evaluations_before_a_step():
    model = keras.Sequential([keras.Input((1,)), L.Dense(1, use_bias=False)])
    stopping = EarlyStopping(model, patience_epochs=2, from_step=30)
    stopped = []
    for epoch, loss in enumerate((0.1, 0.1, 0.5, 0.6, 0.7), 1):
        model.set_weights([np.full((1, 1), float(epoch))])
        end = EpochEnd(10 * epoch, epoch, loss, {"loss": loss}, {})
        stopped.append(stopping.on_epoch(end))
    assert stopped == [False, False, False, False, True]
    assert stopping.before_export() == {"loss": 0.5}
    assert model.get_weights()[0] == 3
    assert stopping.facts()["from_step"] == 30
    assert "from_step" not in EarlyStopping(model).facts()  # older checkpoints resume


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"kind": "resnet"}, ["model.kind='resnet'", "residual"]),
        ({"members": 1, "kind": "tabm"}, ["model.members=1", "at least 2"]),
        ({"members": 4}, ["members=4", "kind='mlp'", "kind: tabm"]),
        ({"low_rank": 0}, ["model.low_rank=0", "at least 1"]),
        ({"low_rank": 64}, ["low_rank=64", "[64, 32]", "less than 64"]),
        ({"low_rank": 4, "sparsity": 0.5}, ["low_rank=4", "sparsity=0.5", "remove one"]),
        ({"sparsity": 1.0}, ["model.sparsity=1.0", "below 1"]),
        ({"kind": "tabm", "hidden_units": []}, ["kind='tabm'", "hidden_units=[]", "[64, 32]"]),
        ({"low_rank": 4, "hidden_units": []}, ["low_rank=4", "hidden_units=[]"]),
    ],
)
def test_bad_settings_are_reported(settings, facts):
    with pytest.raises(ValueError, match=r"^training\.model") as error:
        TrainerConfig.parse({"model": settings}, section="training")
    assert [fact for fact in facts if fact not in str(error.value)] == []
