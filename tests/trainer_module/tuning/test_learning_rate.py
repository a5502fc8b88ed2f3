"""The range test: the rate that it finds, restored state, and one test per run."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainerConfig, TrainingLoop, TrainStep, TunerConfig, find_learning_rate
from trainer_module.loop.evaluation import Evaluation
from trainer_module.step.train_step import SavedState
from trainer_module.tfx.run import run_fn

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(512, 6)).astype("float32")
Y = np.tanh(X @ RANDOM.normal(size=(6, 1))).astype("float32") + X[:, :1]
QUICK = {"label": "generous", "global_batch_size": 32}


def made(optimizer=None, **options):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    optimizer = optimizer or keras.optimizers.Adam(0.5)
    return TrainStep(model, optimizer, "mse", micro_batch_size=32, **options)


def bits(step):
    variables = [*step.model.variables, *step.optimizer.variables, *step.state()]
    return [np.asarray(v.numpy() if isinstance(v, tf.Variable) else v).tobytes() for v in variables]


@pytest.mark.slow
def test_found_rate_trains():
    """Against 1e-6, which learns nothing, and 10, which does not stay: a tenth of their losses."""
    step = made()
    initial = SavedState(step)
    evaluate = Evaluation(step.model, "mse", tf.data.Dataset.from_tensor_slices((X, Y)).batch(64))

    def loss_after(rate):
        initial.restore()
        step.optimizer.learning_rate = rate
        TrainingLoop(step, (X, Y), batch_size=64, epochs=8, seed=2, progress=False).fit()
        return evaluate()["loss"]

    found = find_learning_rate(step, (X, Y), batch_size=64, seed=2)
    losses = {rate: loss_after(rate) for rate in (1e-6, 10.0, found.rate)}
    assert losses[found.rate] < 0.1 * losses[1e-6]
    assert losses[found.rate] < 0.1 * losses[10.0]
    assert 1e-4 < found.rate < 0.5
    assert found.diverged
    assert found.rate == pytest.approx(0.1 * found.rates[found.best], rel=1e-12)
    rows = found.to_csv().splitlines()
    assert rows[0] == "learning_rate,loss,smoothed_loss"
    assert len(rows) == 1 + len(found.rates) < 200


def test_state_is_restored_and_the_result_is_reproducible(strategies):
    """Bit for bit: weights, optimizer with its rate, average, counters and seeds."""
    with strategies["mirrored2"].scope():
        step = made(ema_momentum=0.9)
    step((X[:64], Y[:64]))
    before = bits(step)
    options = {"batch_size": 64, "windows": 20, "lowest": 1e-4}
    first = find_learning_rate(step, (X, Y), seed=2, **options)
    assert bits(step) == before
    assert find_learning_rate(step, (X, Y), seed=2, **options) == first
    assert find_learning_rate(step, (X, Y), seed=3, **options).losses != first.losses


def test_invalid_range_tests_are_rejected():
    scheduled = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 10))
    with pytest.raises(ValueError, match=r"has a schedule, .* as the schedule's peak"):
        find_learning_rate(made(scheduled), (X, Y), batch_size=64)
    reshuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(512, seed=0).batch(64)
    with pytest.raises(
        ValueError, match=r"another order in each iterator.*reshuffle_each_iteration=False"
    ):
        find_learning_rate(made(), reshuffled)
    with pytest.raises(ValueError, match=r"lowest=1\.0, highest=0\.1, .*: give 0 < lowest"):
        find_learning_rate(made(), (X, Y), batch_size=64, lowest=1.0, highest=0.1)
    with pytest.raises(ValueError, match="has no batch"):
        find_learning_rate(made(), tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(4))
    step = made()
    before = bits(step)
    with pytest.raises(ValueError, match="no learning rate from 1e-06 to 10 lowers the loss"):
        find_learning_rate(step, (X * np.nan, Y), batch_size=64)
    assert bits(step) == before


def test_invalid_learning_rates_are_rejected():
    for wrong in (0.0, -1.0, "fast"):
        with pytest.raises(ValueError, match=r"trainer.optimizer.learning_rate="):
            TrainerConfig.parse({"optimizer": {"learning_rate": wrong}})
    config = TrainerConfig.parse({"optimizer": {"learning_rate": "auto"}})
    tuner = TunerConfig.parse({"search": {"optimizer.learning_rate": {"min": 1e-3, "max": 0.1}}})
    with pytest.raises(ValueError, match=r"learning_rate='auto' finds it .* remove one of them"):
        tuner.check(config)


@pytest.mark.slow
def test_run_finds_its_rate_once(fn_args, tmp_path, caplog):
    """And trains as one that was given the rate: bit for bit. The rate is the schedule's peak."""
    schedule = {"name": "cosine"}
    optimizer = {"learning_rate": "auto", "schedule": schedule}
    kept = {"checkpoint_dir": str(tmp_path / "kept")}
    with caplog.at_level("INFO", "absl"):
        result = run_fn(fn_args(**QUICK, **kept, epochs=3, optimizer=optimizer))
    (line,) = [r.getMessage() for r in caplog.records if "a tenth of" in r.getMessage()]
    (record,) = (tmp_path / "kept").glob("*/learning_rate.json")
    rate = json.loads(record.read_text())["learning_rate"]
    assert line.startswith(f"Learning rate {rate:.3g}, a tenth of the")
    table = line.rpartition(": ")[2]
    with open(table, encoding="utf-8") as stream:
        assert stream.readline() == "learning_rate,loss,smoothed_loss\n"
    assert result.metrics["auc"] > 0.8
    given = {"learning_rate": rate, "schedule": schedule}
    assert run_fn(fn_args(**QUICK, epochs=3, optimizer=given)).history == result.history
    caplog.clear()
    with caplog.at_level("INFO", "absl"):
        again = run_fn(fn_args(**QUICK, **kept, epochs=4, optimizer=optimizer))
    text = caplog.text
    assert "a tenth of" not in text
    assert "which was found when this run began" in text
    assert "Continuing at step" in text
    assert again.steps == result.steps // 3 * 4
