"""Where the time of real steps goes: parts add up to the wall clock."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    ParameterServerStep,
    ScaledLearningRate,
    TrainingLoop,
    TrainStep,
    profile_step,
)
from trainer_module.profiling.timeline import _PARTS
from trainer_module.step.train_step import SavedState

STEPS = 6
ROWS = 64


def build(strategy: tf.distribute.Strategy) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model of packed columns with an embedding, dropout and a nested model."""
    with strategy.scope():
        inputs = {
            "packed_float": keras.Input((16,), name="packed_float"),
            "packed_int": keras.Input((2,), name="packed_int", dtype="int64"),
        }
        ids = keras.layers.Flatten()(
            keras.layers.Embedding(50, 4, name="ids")(inputs["packed_int"])
        )
        x = keras.layers.Concatenate()([inputs["packed_float"], ids])
        x = keras.layers.Dense(300, activation="relu", name="dense")(x)
        x = keras.layers.Dropout(0.1, name="dropout")(x)
        inner = [keras.Input((300,)), keras.layers.Dense(300, name="dense_1"),
                 keras.layers.LayerNormalization(name="norm")]  # fmt: skip
        x = keras.Sequential(inner, name="inner")(x)
        model = keras.Model(inputs, keras.layers.Dense(1, name="out")(x))
        return model, keras.optimizers.AdamW(1e-3)


def rows(count: int = 4 * ROWS) -> tuple[dict[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    packed = random.normal(size=(count, 16)).astype("float32")
    ids = random.integers(0, 50, (count, 2))
    return {"packed_float": packed, "packed_int": ids}, packed.sum(axis=1, keepdims=True)


def test_the_parts_add_up_to_the_wall_time(strategies, passes_of_one):
    """Reference: `perf_counter` around the steps that the profiler records, to 10 %.

    The parts are intervals of one run of these steps, so that a busy machine makes both longer.
    """
    strategy = strategies["mirrored2"]
    model, optimizer = build(strategy)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=16, strategy=strategy, clip_norm=1.0)
    profile = profile_step(step, rows(), batch_size=ROWS, steps=STEPS)
    parts = profile.parts
    assert tuple(parts) == _PARTS
    assert all(seconds >= 0 for seconds in parts.values())
    for part in ("forward", "backward", "update", "host overhead"):
        assert parts[part] > 0, part
    assert parts["window (XLA)"] == 0
    assert parts["reduction over replicas"] > 0
    assert sum(parts.values()) == pytest.approx(profile.recorded_seconds, rel=0.1)
    assert profile.global_batch_rows == ROWS
    assert profile.rows_per_second == pytest.approx(ROWS / profile.seconds)
    assert (profile.steps, profile.micro_batch_size) == (STEPS, 16)
    assert profile.replicas == strategy.num_replicas_in_sync
    assert profile.peak_memory_bytes > 50 << 20


def test_a_profile_changes_no_number_of_the_training():
    x, y = rows()
    sizes = {0: ROWS, 8: 2 * ROWS}
    weights = []
    model, _ = build(tf.distribute.get_strategy())
    optimizer = keras.optimizers.AdamW(ScaledLearningRate(1e-3, sizes, "linear"))
    step = TrainStep(model, optimizer, "mse", micro_batch_size=16, ema_momentum=0.9)
    initial = SavedState(step)
    for profiled in (False, True):
        initial.restore()
        TrainingLoop(step, (x, y), batch_size=sizes, epochs=1, progress=False).fit()
        if profiled:
            profile_step(step, (x, y), batch_size=ROWS, steps=3)
        TrainingLoop(step, (x, y), batch_size=sizes, epochs=1, progress=False).fit()
        assert int(step.step.numpy()) == 8
        optimizer.iterations.assign(0)  # the rate follows the windows of the step, not the copy's
        assert float(optimizer.learning_rate) == pytest.approx(2e-3)
        weights.append([v.numpy() for v in [*model.variables, *optimizer.variables, *step.state()]])
    for first, second in zip(*weights, strict=True):
        np.testing.assert_array_equal(first, second)


def test_slow_reading_is_reading():
    """The data sleeps for 50 ms per batch, which the step can only wait for."""

    def slow(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def wait(x):
            time.sleep(0.05)
            return x

        x = tf.numpy_function(wait, [tf.ones([8, 4])], tf.float32)
        return tf.ensure_shape(x, [8, 4]), tf.ones([8, 1])

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=8)
    profile = profile_step(step, tf.data.Dataset.range(4).map(slow), steps=8)
    assert profile.parts["reading"] > 0.04
    assert profile.parts["reading"] > 0.5 * profile.recorded_seconds
    text = str(profile)
    assert "8 steps of 8 rows on 1 replica" in text
    assert max(map(len, text.splitlines())) <= 100


def test_xla_has_one_part_for_forward_and_backward():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=8, jit_compile=True)
    data = np.ones((32, 4), "float32"), np.ones((32, 1), "float32")
    if tf.__version__ > "2.17":  # the second stack
        with pytest.raises(ValueError, match="does not record the operations of XLA"):
            profile_step(step, data, batch_size=16, steps=4)
        return
    profile = profile_step(step, data, batch_size=16, steps=4)
    assert profile.parts["window (XLA)"] > 0
    assert "window (XLA)" in str(profile)


def test_wrong_arguments_are_named():
    for changed, facts in [
        ({"steps": 0}, ["steps=0"]),
        ({"steps": 5000}, ["steps=5000", "1,000"]),
        ({"steps_per_loop": 0}, ["steps_per_loop=0"]),
        ({"batch_size": None}, ["batch_size"]),
    ]:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=8)
        data = np.ones((32, 4), "float32"), np.ones((32, 1), "float32")
        with pytest.raises(ValueError, match=facts[0]) as error:
            profile_step(step, data, **{"batch_size": 16, "steps": 2, **changed})
        for fact in facts:
            assert fact in str(error.value)


def test_no_batch_another_profiler_and_another_step(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=8)
    data = tf.data.Dataset.from_tensor_slices((tf.ones([8, 4]), tf.ones([8, 1]))).batch(8)
    with pytest.raises(ValueError, match="no batch"):
        profile_step(step, data.take(0), steps=2)
    with pytest.raises(ValueError, match="str: give a TrainStep"):
        profile_step("step", data, steps=2)  # pyright: ignore
    servers = ParameterServerStep.__new__(ParameterServerStep)
    with pytest.raises(ValueError, match="ParameterServerStep: give a TrainStep"):
        profile_step(servers, data, steps=2)  # pyright: ignore
    tf.profiler.experimental.start(str(tmp_path))
    try:
        with pytest.raises(ValueError, match="another TensorFlow profiler"):
            profile_step(step, data, steps=2)
    finally:
        tf.profiler.experimental.stop()
