"""What callbacks leave on disk and in the model, also after a kill."""

from __future__ import annotations

import json
import math

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from trainer_module.common.user_values import better_mode
from trainer_module.loop.callback import EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callbacks import EarlyStopping, TensorBoardScalars

FEATURES, LABELS, _ = full_batch.batch("mlp", 24)


def test_tensorboard_shows_each_scalar_at_its_step(tmp_path):
    callback = TensorBoardScalars(str(tmp_path))
    rare = {10: {}, 20: {"noise_scale": 512.0}}
    for step, values in rare.items():
        progress = LoopProgress(step, 10, 20, 1, 1, step / 64, 2.0, 0.25, 64, 0.5, **values)
        callback.on_loop(progress)
    callback.on_epoch(EpochEnd(20, 1, 0.5, {"loss": 0.375, "auc": 0.75}, {}))
    callback.on_end(FitResult("epochs", 20, 1, {}, {}, {}))
    found = {}
    for name in ("train", "eval"):
        shown = EventAccumulator(str(tmp_path / name))  # TensorBoard's own reader
        shown.Reload()
        for tag in shown.PluginTagToContent("scalars"):
            for event in shown.Tensors(tag):
                found[name, event.step, tag] = float(tf.make_ndarray(event.tensor_proto))
    same = {"gradient_norm": 2.0, "learning_rate": 0.25, "examples_per_second": 128.0}
    assert found == {
        **{("train", step, "loss"): step / 64 for step in (10, 20)},
        **{("train", step, tag): value for step in (10, 20) for tag, value in same.items()},
        ("train", 20, "gradient_noise_scale"): 512.0,
        ("eval", 20, "loss"): 0.375,
        ("eval", 20, "auc"): 0.75,
    }


def test_early_stopping_restores_the_best_weights(warnings):
    """The same is not better, nor is NaN, which counts once there has been a value."""
    model = full_batch.mlp()
    stopping = EarlyStopping(model, monitor="auc", patience_epochs=2)
    kept = {}
    for epoch, auc in enumerate([math.nan] * 3 + [0.8, 0.8, math.nan, 0.7, 0.9]):
        model.set_weights([np.full_like(w, epoch) for w in model.get_weights()])
        kept[epoch] = stopping.on_epoch(EpochEnd(epoch, epoch, 0.0, {"auc": auc}, {}))
        if kept[epoch]:
            break
    assert kept == {**dict.fromkeys(range(5), False), 5: True}
    assert stopping.before_export() == {"auc": 0.80}
    assert all((w == 3).all() for w in model.get_weights())
    (line,) = warnings
    assert "auc is undefined (NaN) of the eval rows" in line


def test_early_stopping_does_not_count_evaluations_before_a_step():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    stopping = EarlyStopping(model, patience_epochs=2, from_step=30)
    stopped = []
    for epoch, loss in enumerate((0.1, 0.1, 0.5, 0.6, 0.7), 1):
        model.set_weights([np.full((1, 1), float(epoch))])
        end = EpochEnd(10 * epoch, epoch, loss, {"loss": loss}, {})
        stopped.append(stopping.on_epoch(end))
    assert stopped == [False, False, False, False, True]
    assert stopping.before_export() == {"loss": 0.5}
    assert model.get_weights()[0] == 3


def test_a_start_is_replaced_only_where_the_other_metric_stays_within_its_limit():
    """The loss falls in each epoch. The limit is 0.005, of an error as a share."""
    for name, start, values, best in [
        ("auc", 0.80, [0.79, 0.796, 0.79], 2),
        ("auc", 0.80, [0.79, 0.78, 0.77], 0),
        ("mean_absolute_error", 2.0, [2.02, 2.009, 2.1], 2),
        ("gini", 0.80, [0.1, 0.2, 0.3], 3),  # larger or smaller: unknown, so only the loss counts
        ("auc", math.nan, [math.nan] * 3, 3),
    ]:
        model = full_batch.mlp()
        stopping = EarlyStopping(model, patience_epochs=9)
        stopping.keep_start({"loss": 1.0, name: start})
        for epoch, value in enumerate(values, 1):
            model.set_weights([np.full_like(w, epoch) for w in model.get_weights()])
            stopping.on_epoch(
                EpochEnd(epoch, epoch, 0.0, {"loss": 1 - epoch / 10, name: value}, {})
            )
        resumed = EarlyStopping(model)
        resumed.restore(json.loads(json.dumps(stopping.state())))
        assert str(resumed.state()) == str(stopping.state())
        assert stopping.before_export() == pytest.approx(
            {"loss": 1 - best / 10, name: [start, *values][best]}, nan_ok=True
        )


def test_monitored_metric_must_be_evaluated():
    callback = EarlyStopping(full_batch.mlp(), monitor="acu", mode="max")
    with pytest.raises(ValueError, match=r"monitor='acu' is not evaluated; did you mean 'auc'"):
        callback.on_epoch(EpochEnd(1, 1, 0.0, {"loss": 1.0, "auc": 0.5}, {}))


def test_mode_is_derived_from_the_metric_name():
    for metric, mode in [
        ("loss", "min"),
        ("mean_absolute_error", "min"),
        ("squared_hinge", "min"),
        ("auc", "max"),
        ("sparse_top_k_categorical_accuracy", "max"),
        ("f1_score/0", "max"),
    ]:
        assert better_mode(metric) == mode
        assert better_mode(metric, "min") == "min"
    with pytest.raises(ValueError, match=r"mode='auto': .* larger 'gini' is better"):
        better_mode("gini")
    with pytest.raises(ValueError, match=r"mode='best': use 'min', 'max' or 'auto'"):
        better_mode("gini", "best")
