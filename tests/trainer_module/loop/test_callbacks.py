"""What callbacks leave on disk and in the model, also after a kill."""

from __future__ import annotations

import csv
import functools
import json
import math
from pathlib import Path

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from trainer_module.common.improvement import better_mode
from trainer_module.loop.callbacks import (
    Callback,
    CsvLog,
    EarlyStopping,
    EpochEnd,
    ExportBest,
    FitResult,
    LoopProgress,
    TensorBoardScalars,
)
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep

FEATURES, LABELS, _ = full_batch.batch("mlp", 24)


class Predictions(Callback):
    """Keeps what the model says at the end of each epoch, and the loss."""

    def __init__(self, model):
        self.model = model
        self.losses = []
        self.outputs = []

    def on_epoch(self, end):
        self.losses.append(end.metrics["loss"])
        self.outputs.append(self.model(FEATURES).numpy())
        return False


class KillAfterEpoch(Callback):
    """What SIGKILL would do after the epoch's other callbacks and before its checkpoint."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch(self, end):
        if end.epoch == self.epoch:
            raise KeyboardInterrupt
        return False


@functools.cache
def traced(strategy, ema_momentum):
    """A step, an evaluation of its model, and its first values: its graph is traced once."""
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = full_batch.mlp()
        # Its steps get larger, so that some epoch in the middle is the best.
        schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 5, 4.0)
        optimizer = keras.optimizers.Adam(schedule)
    step = TrainStep(
        model, optimizer, "mse", micro_batch_size=4, strategy=strategy, ema_momentum=ema_momentum
    )
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(10)
    return step, Evaluation(model, "mse", data, strategy=strategy), SavedState(step)


def build(strategy, callbacks_of, folder=None, *, ema_momentum=None):
    """A loop of 5 epochs, before its first, with the callbacks that `callbacks_of(model)` gives."""
    step, evaluate, initial = traced(strategy, ema_momentum)
    initial.restore()
    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(str(folder), step, share_of_time=None)
    return TrainingLoop(
        step,
        tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(6),
        epochs=5,
        evaluate=evaluate,
        callbacks=callbacks_of(step.model),
        checkpoints=checkpoints,
    )


def load(path):
    """The model on disk as a function, without this project's code."""
    if str(path).endswith(".keras"):
        return keras.saving.load_model(path)
    return tf.saved_model.load(path).signatures["serving_default"]


@pytest.mark.parametrize(
    ("name", "files", "ema_momentum"),
    [("one_device", ["best.keras"], None), ("mirrored2", ["best", "a.keras"], 0.5)],
)
def test_export_best_writes_the_best_epoch(strategies, tmp_path, name, files, ema_momentum):
    """Reference: the model's own outputs at the end of that epoch, 1e-6 in float32."""
    paths = [str(tmp_path / f"export-{file}" / file) for file in files]
    kept = []

    def callbacks(model):
        kept.append(Predictions(model))
        return [*(ExportBest(model, path) for path in paths), kept[0]]

    build(strategies[name], callbacks, ema_momentum=ema_momentum).fit()
    best = int(np.argmin(kept[0].losses))
    assert 0 < best < 4
    for file, path in zip(files, paths, strict=True):
        found = load(path)(tf.constant(FEATURES))
        found = next(iter(found.values())) if isinstance(found, dict) else found
        np.testing.assert_allclose(found, kept[0].outputs[best], rtol=1e-6, atol=1e-6)
        assert np.abs(found - kept[0].outputs[-1]).max() > 1e-3
        assert [p.name for p in Path(path).parent.iterdir()] == [file]


def test_export_best_does_not_change_training(strategies, tmp_path):
    """Bit for bit."""
    weights = []
    for callbacks in (lambda model: [], lambda model: [ExportBest(model, str(tmp_path / "best"))]):
        loop = build(strategies["one_device"], callbacks)
        loop.fit()
        weights.append(loop.train_step.model.get_weights())
    for plain, exported in zip(*weights, strict=True):
        np.testing.assert_array_equal(plain, exported)


def test_csv_rows_and_best_model_survive_a_kill(strategies, tmp_path):
    """Reference: the same run without a kill."""

    def run(folder, killed_after):
        files = str(folder / "epochs.csv"), str(folder / "best.keras")
        loop = build(
            strategies["one_device"],
            lambda model: [
                CsvLog(files[0]),
                ExportBest(model, files[1]),
                KillAfterEpoch(killed_after),
            ],
            folder / "checkpoints",
        )
        loop.fit()
        return Path(files[0]).read_text(), load(files[1])(FEATURES).numpy()

    table, outputs = run(tmp_path / "whole", None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", 4)  # after the best epoch
    continued = run(tmp_path / "killed", None)
    assert continued[0] == table
    np.testing.assert_array_equal(continued[1], outputs)
    rows = list(csv.DictReader(table.splitlines()))
    assert [(row["epoch"], row["step"]) for row in rows] == [
        (str(epoch), str(4 * epoch)) for epoch in range(1, 6)
    ]
    assert all(float(row["eval_loss"]) > 0 and float(row["loss"]) > 0 for row in rows)


def test_best_weights_survive_a_kill(strategies, tmp_path):
    """Reference: the same run without a kill."""

    def run(*others, folder=None):
        loop = build(
            strategies["one_device"], lambda model: [EarlyStopping(model), *others], folder
        )
        return loop.fit().metrics, loop.train_step.model.get_weights()

    epochs = Predictions(full_batch.mlp())
    metrics, weights = run(epochs)
    assert metrics["loss"] == min(epochs.losses[:3]) < min(epochs.losses[3:])
    with pytest.raises(KeyboardInterrupt):
        run(KillAfterEpoch(5), folder=tmp_path)  # the best epoch is before the last checkpoint
    log = CsvLog(str(tmp_path / "epochs.csv"))
    with pytest.raises(
        ValueError, match=r"\['EarlyStopping'\], .* has \['EarlyStopping', 'CsvLog'"
    ):
        run(log, folder=tmp_path)
    continued, found = run(folder=tmp_path)
    assert continued == metrics
    for one, expected in zip(found, weights, strict=True):
        np.testing.assert_array_equal(one, expected)


def test_interrupted_export_keeps_the_previous_best(tmp_path):
    model = full_batch.mlp()
    callback = ExportBest(model, str(tmp_path / "best"))
    callback.on_epoch(EpochEnd(1, 1, 0.5, {"loss": 0.5}, {}))
    first = model(FEATURES).numpy()
    (tmp_path / "best").rename(tmp_path / "best.before")  # where a kill between two renames ends
    (tmp_path / "best.writing").mkdir()
    model.set_weights([w + 1.0 for w in model.get_weights()])
    callback.on_epoch(EpochEnd(2, 2, 0.6, {"loss": 0.6}, {}))  # not better: nothing is written
    found = load(str(tmp_path / "best.before"))(tf.constant(FEATURES))
    np.testing.assert_allclose(next(iter(found.values())), first, rtol=1e-6, atol=1e-6)
    callback.on_epoch(EpochEnd(3, 3, 0.4, {"loss": 0.4}, {}))
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_tensorboard_shows_each_scalar_at_its_step(tmp_path):
    callback = TensorBoardScalars(str(tmp_path))
    parts = {"reading": 1.25, "computing": 2.5, "other": 5.0}
    rare = {10: {}, 20: {"noise_scale": 512.0, "task_weights": {"up": 1.5}, "parts": parts}}
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
        ("train", 20, "task_weight/up"): 1.5,
        ("train", 20, "seconds_per_step/reading"): 0.125,
        ("train", 20, "seconds_per_step/computing"): 0.25,
        ("train", 20, "seconds_per_step/other"): 0.5,
        ("eval", 20, "loss"): 0.375,
        ("eval", 20, "auc"): 0.75,
    }


def test_early_stopping_restores_the_best_weights():
    model = full_batch.mlp()
    stopping = EarlyStopping(model, monitor="auc", patience_epochs=2, min_delta=0.01)
    kept = {}
    for epoch, auc in enumerate([0.70, 0.80, 0.805, math.nan, 0.99]):
        model.set_weights([np.full_like(w, epoch) for w in model.get_weights()])
        kept[epoch] = stopping.on_epoch(EpochEnd(epoch, epoch, 0.0, {"auc": auc}, {}))
        if kept[epoch]:
            break
    # 0.805 is less than min_delta better, NaN never is: two epochs without improvement.
    assert kept == {0: False, 1: False, 2: False, 3: True}
    assert stopping.before_export() == {"auc": 0.80}
    assert all((w == 1).all() for w in model.get_weights())


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


@pytest.mark.parametrize(
    ("name", "start", "values", "best"),
    [
        ("auc", 0.80, [0.79, 0.796, 0.79], 2),
        ("auc", 0.80, [0.79, 0.78, 0.77], 0),
        ("mean_absolute_error", 2.0, [2.02, 2.009, 2.1], 2),
        ("gini", 0.80, [0.1, 0.2, 0.3], 3),  # larger or smaller: unknown, so only the loss counts
        ("auc", math.nan, [math.nan] * 3, 3),
    ],
)
def test_a_start_is_replaced_only_where_the_other_metric_stays_within_its_limit(
    name, start, values, best
):
    """The loss falls in each epoch. The limit is 0.005, of an error as a share."""
    model = full_batch.mlp()
    stopping = EarlyStopping(model, patience_epochs=9)
    stopping.keep_start({"loss": 1.0, name: start})
    for epoch, value in enumerate(values, 1):
        model.set_weights([np.full_like(w, epoch) for w in model.get_weights()])
        stopping.on_epoch(EpochEnd(epoch, epoch, 0.0, {"loss": 1 - epoch / 10, name: value}, {}))
    resumed = EarlyStopping(model)
    resumed.restore(json.loads(json.dumps(stopping.state())))
    assert str(resumed.state()) == str(stopping.state())
    assert stopping.before_export() == pytest.approx(
        {"loss": 1 - best / 10, name: [start, *values][best]}, nan_ok=True
    )


@pytest.mark.parametrize("kind", [EarlyStopping, lambda m, **k: ExportBest(m, "best", **k)])
def test_monitored_metric_must_be_evaluated(kind):
    callback = kind(full_batch.mlp(), monitor="acu", mode="max")
    with pytest.raises(ValueError, match=r"monitor='acu' is not evaluated; did you mean 'auc'"):
        callback.on_epoch(EpochEnd(1, 1, 0.0, {"loss": 1.0, "auc": 0.5}, {}))


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("loss", "min"),
        ("mean_absolute_error", "min"),
        ("squared_hinge", "min"),
        ("kl_divergence", "min"),
        ("false_positives", "min"),
        ("auc", "max"),
        ("sparse_top_k_categorical_accuracy", "max"),
        ("f1_score/0", "max"),
    ],
)
def test_mode_is_derived_from_the_metric_name(metric, mode):
    assert better_mode(metric) == mode
    assert better_mode(metric, "min") == "min"


def test_metrics_of_unknown_direction_need_a_mode():
    with pytest.raises(ValueError, match=r"mode='auto': .* larger 'gini' is better"):
        better_mode("gini")
    with pytest.raises(ValueError, match=r"mode='best': use 'min', 'max' or 'auto'"):
        better_mode("gini", "best")
