"""A model in stages on several devices against the same model in one piece.

Reference: full_batch.train (one device, one full batch, one piece, float64) to 1e-12; with dropout,
whose masks no full batch has, the same TrainStep on the model in one piece, to 1e-6.
"""

from __future__ import annotations

import threading

import cells
import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import StagedModel, TrainStep, split_model
from trainer_module.loop.evaluation import Evaluation
from trainer_module.window.spec import plan_passes

L = keras.layers
CPUS = [f"CPU:{i}" for i in range(4)]


CELLS = {
    # The second stage, a Flatten, has no variables; gradients of looked-up rows come through it.
    "three_devices": (
        cells.Cell("none", "embeddings", "adamw", 4, "short_last", "random", schedule=True),
        [1, 2],
    ),
    "several_outputs": (
        cells.Cell("one_device", "two_in_two_out", "sgd", 2, "ragged", "some_zero"),
        [3],
    ),
    "regularised": (
        cells.Cell("none", "regularised", "adam", 2, "fewer_than_replicas", "random", 0.3, 0.9),
        [0],
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_stages_train_as_one_piece(strategies, monkeypatch, name):
    cell, places = CELLS[name]
    _, expected, averages = cells.reference(cell)
    stages = len(places) + 1
    strategy = strategies[cell.strategy]
    whole = full_batch.MODELS[cell.kind]

    def staged():
        model = whole()
        parts = split_model(model, [model.layers[i].name for i in places])
        return StagedModel(parts, devices=CPUS[:stages])

    monkeypatch.setitem(full_batch.MODELS, cell.kind, staged)
    step = cells.trained(cell, strategy)
    assert full_batch.error(step.model.get_weights(), expected) < 1e-12
    if cell.ema_momentum:
        assert full_batch.error([a.numpy() for a in step.averages], averages) < 1e-12


def dropped_out():
    """Three parts, two of them with dropout, one without trainable variables."""
    keras.utils.set_random_seed(3)
    dense = L.Dense(16, activation="tanh", activity_regularizer="l2", kernel_regularizer="l2")
    return [
        keras.Sequential([keras.Input((5,)), dense, L.Dropout(0.5, seed=1)], name="first"),
        keras.Sequential([L.Rescaling(2.0), L.Dropout(0.3, seed=2)], name="second"),
        keras.Sequential([L.Dense(8, activation="tanh"), L.Dense(1)], name="third"),
    ]


def in_one_piece():
    x = y = keras.Input((5,))
    for part in dropped_out():
        y = part(y)
    return keras.Model(x, y)


def trained(build, strategy):
    with strategy.scope():
        model, optimizer = build(), keras.optimizers.Adam(0.05)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=3, strategy=strategy)
    for seed, rows in enumerate((11, 7)):
        step(full_batch.batch("mlp", rows, seed))
    return step


def test_dropout_of_recomputed_stages_draws_the_masks_of_one_piece(strategies, passes_of_one):
    step = trained(
        lambda: StagedModel(dropped_out(), devices=CPUS[:3], recompute=("first", "second")),
        strategies["none"],
    )
    alone = trained(in_one_piece, strategies["none"]).model.get_weights()
    assert full_batch.error(step.model.get_weights(), alone) <= 1e-6
    for number, stage in enumerate(step.model.stages):
        for variable in stage.variables:
            assert variable.value.device.endswith(f"CPU:{number}")
    # Dense layers of the first and the third stage: Adam's m and v of a kernel are beside it.
    slots = {v.path: v.value.device[-1] for v in step.optimizer.variables if "kernel" in v.path}
    assert sorted(slots.values()) == ["0", "0", "2", "2", "2", "2"]


class Meeting(L.Layer):
    """Return the rows; for the micro-batch `wait`, only when `until` is set, or after 20 s."""

    def __init__(self, wait, until, announce):
        super().__init__()
        self.seen, self.rest = [], (wait, until, announce)

    def call(self, x):
        def pass_on(rows):
            wait, until, announce = self.rest
            self.seen.append(rows[0, 0])
            if rows[0, 0] == wait:
                self.met = until.wait(20)
            if announce is not None and rows[0, 0] == announce[0]:
                announce[1].set()
            return rows

        return tf.ensure_shape(tf.numpy_function(pass_on, [x], x.dtype, stateful=False), x.shape)


def test_a_stage_has_the_next_micro_batch_while_another_has_this_one():
    """The second stage does not let go of micro-batch 1 before the first stage has begun on 2."""
    begun = threading.Event()
    x, y = keras.Input((1,)), keras.Input((1,))
    first = keras.Model(x, Meeting(None, None, (2.0, begun))(x))
    last = Meeting(1.0, begun, None)
    second = keras.Model(y, L.Dense(1)(last(y)))
    model = StagedModel([first, second], devices=CPUS[:2])
    step = TrainStep(model, keras.optimizers.SGD(0.0), "mse", micro_batch_size=1)
    step((tf.constant([[1.0], [2.0], [3.0]]), tf.zeros([3, 1])))
    assert last.met
    assert plan_passes(2.0**40, concurrent_passes=2) == (1, 2), (
        "no more under way than there are stages"
    )


def test_it_is_an_ordinary_model_afterwards(tmp_path):
    model = StagedModel(dropped_out(), devices=CPUS[:3])
    features, labels, _ = full_batch.batch("mlp")
    expected = model.predict(features, verbose=0)
    whole = model.in_one_piece()
    assert not any(isinstance(layer, type(model.stages[0])) for layer in whole.layers)
    np.testing.assert_array_equal(whole.predict(features, verbose=0), expected)
    metrics = Evaluation(model, "mse", tf.data.Dataset.from_tensors((features, labels)))()
    np.testing.assert_allclose(metrics["loss"], np.mean((expected - labels) ** 2), rtol=1e-6)
    model.export(tmp_path / "saved", verbose=False)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.serve(tf.constant(features)), expected, rtol=1e-6)


def shared():
    dense = L.Dense(5)
    return [
        keras.Sequential([keras.Input((5,)), dense], name="a"),
        keras.Sequential([dense, L.Dense(1)], name="b"),
    ]


def test_invalid_stages_are_rejected():
    for parts, options, message in [
        (list, {}, "give at least one"),
        (lambda: [L.Dense(1)], {}, "has no inputs"),
        (dropped_out, {"devices": CPUS[:2]}, "3 stages need 3 devices.* are 2"),
        (dropped_out, {"devices": ["CPU:0", "CPU:1", "CPU:9"]}, "'CPU:9' does not exist"),
        (dropped_out, {"recompute": ["thrid"]}, "'thrid' is not a stage; did you mean 'third'"),
        (shared, {"devices": CPUS[:2]}, "is in the stages 'a' and 'b'"),
    ]:
        with pytest.raises(ValueError, match=message):
            StagedModel(parts(), **options)


def test_xla_and_other_strategies_are_refused(strategies):
    model = StagedModel(dropped_out(), devices=CPUS[:3])
    step = TrainStep(model, keras.optimizers.SGD(), "mse", micro_batch_size=2, jit_compile=True)
    with pytest.raises(ValueError, match="XLA compiles for one device"):
        step(full_batch.batch("mlp"))
    with (
        pytest.raises(ValueError, match=r"so MirroredStrategy cannot: create the model outside"),
        strategies["mirrored2"].scope(),
    ):
        StagedModel(dropped_out()[:2])


def test_a_split_through_a_skip_connection_is_rejected():
    x = keras.Input((4,))
    hidden = L.Dense(4, name="hidden")(x)
    model = keras.Model(x, L.Dense(1)(L.Add(name="sum")([x, hidden])))
    with pytest.raises(ValueError, match=r"after=\['hidden'\]: part 2 .* uses more than"):
        split_model(model, ["hidden"])
    with pytest.raises(ValueError, match=r"'hiden' is not a layer .*did you mean 'hidden'"):
        split_model(model, ["hiden"])
    assert len(split_model(model, ["sum"])) == 2
