"""Callbacks of Keras in the loop: they behave as in `fit`, or are rejected."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest

from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep

FEATURES, LABELS, _ = full_batch.batch("mlp", 24)


def loop(*callbacks, epochs=4, optimizer=None, evaluated=True, **options):
    keras.utils.set_random_seed(5)
    model = full_batch.mlp()
    optimizer = optimizer or keras.optimizers.SGD(0.05)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=4)
    return TrainingLoop(
        step,
        (FEATURES, LABELS),
        batch_size=6,
        epochs=epochs,
        progress=False,
        shuffle=False,
        evaluate=held_out(model) if evaluated else None,
        callbacks=callbacks,
        **options,
    )


def held_out(model):
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(24)
    return Evaluation(model, "mse", data, metrics=[keras.metrics.MeanAbsoluteError(name="mae")])


def callbacks(folder):
    """Three that change how training goes, and two that look on."""
    seen = []
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (1 + epoch)),
        keras.callbacks.ReduceLROnPlateau(monitor="val_mae", patience=0, factor=0.5, min_delta=0.2),
        keras.callbacks.EarlyStopping(patience=2, min_delta=0.1),
        keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append((epoch, sorted(logs)))
        ),
    ], seen


def test_callbacks_do_what_they_do_in_keras_fit(tmp_path):
    """Reference: keras.Model.fit on the same batches, 1e-5: it averages over micro-batches too."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "keras").mkdir()
    ours, seen = callbacks(tmp_path / "ours")
    made = loop(*ours, epochs=9)
    result = made.fit()
    keras.utils.set_random_seed(5)
    model = full_batch.mlp()
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], run_eagerly=True)
    theirs, their_seen = callbacks(tmp_path / "keras")
    history = model.fit(
        FEATURES,
        LABELS,
        batch_size=6,
        epochs=9,
        shuffle=False,
        validation_data=(FEATURES, LABELS),
        callbacks=theirs,
        verbose=0,
    ).history
    assert result.stopped == "early_stopping"
    assert result.epochs == len(history["loss"]) < 9
    for one, other in zip(made.train_step.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.history["val_loss"], history["val_loss"], rtol=1e-5)
    np.testing.assert_allclose(result.history["val_mae"], history["val_mae"], rtol=1e-5)
    assert [epoch for epoch, _ in seen] == [epoch for epoch, _ in their_seen]
    rates = result.history["learning_rate"]
    np.testing.assert_allclose(rates, history["learning_rate"], rtol=1e-5)
    assert len(set(rates)) > 2
    best = keras.saving.load_model(tmp_path / "ours/best.keras")
    lowest = min(result.history["val_loss"])
    assert np.mean((best(FEATURES).numpy() - LABELS) ** 2) == pytest.approx(lowest, rel=1e-5)


def test_a_callback_stops_within_an_epoch():
    class StopAt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1 and logs["loss"] > 0

    result = loop(StopAt(), steps_per_loop=1).fit()
    assert (result.stopped, result.steps, result.epochs) == ("early_stopping", 2, 1)


class ListensToEvaluation(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        pass


def test_unsupported_callbacks_are_rejected():
    for callback, message in [
        (keras.callbacks.TensorBoard("x"), "TensorBoard is not supported: use .*Scalars"),
        (keras.callbacks.BackupAndRestore("x"), "BackupAndRestore is not .*: give checkpoints="),
        (keras.callbacks.CSVLogger("x"), "CSVLogger is not supported: write pandas.DataFrame"),
        (
            keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
            r"EarlyStopping\(restore_best_weights=True\): use trainer_module.EarlyStopping",
        ),
        (ListensToEvaluation(), "ListensToEvaluation listens to on_test_batch_end, which never"),
        (
            keras.callbacks.EarlyStopping("val_accuracy", mode="max"),
            r"EarlyStopping\(monitor='val_accuracy'\) watches what is not computed; use one of",
        ),
        (keras.callbacks.EarlyStopping("mae"), "did you mean 'val_mae'"),
        (len, "builtin_function_or_method is neither a Callback"),
    ]:
        with pytest.raises(ValueError, match=message):
            loop(callback)


def test_callback_and_schedule_for_the_learning_rate_are_rejected():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    with pytest.raises(ValueError, match="ReduceLROnPlateau sets the learning rate, and the opt"):
        loop(keras.callbacks.ReduceLROnPlateau("loss"), optimizer=keras.optimizers.SGD(schedule))
    with pytest.raises(ValueError, match=r"ReduceLROnPlateau\(monitor='val_loss'\).*no evaluate="):
        loop(keras.callbacks.ReduceLROnPlateau(), evaluated=False)


def test_lists_and_arrays_of_other_types_train_as_arrays():
    """Reference: float32 arrays, bit for bit; those train as in `keras.Model.fit`: see above."""
    keras.utils.set_random_seed(5)
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.05), "mse", micro_batch_size=4)
    initial = SavedState(step)

    def losses(data, **options):
        initial.restore()
        loop = TrainingLoop(step, data, epochs=2, progress=False, **{"batch_size": 6, **options})
        return loop.fit().history["loss"]

    in_order = losses((FEATURES, LABELS), shuffle=False)
    wide = FEATURES.astype("float64"), LABELS.astype("float64")
    assert losses(wide, shuffle=False, batch_size=np.int64(6)) == in_order
    assert losses((FEATURES.tolist(), LABELS.tolist()), shuffle=False) == in_order
    assert losses(wide) not in (in_order, losses(wide, seed=1))


def test_invalid_training_data_is_rejected():
    for data, options, message in [
        ((FEATURES, LABELS), {}, "batch_size=None: arrays need the rows of a global batch"),
        ((FEATURES, LABELS), {"batch_size": 0}, "batch_size=0: use a whole number of at least 1"),
        ((FEATURES, LABELS[:5]), {"batch_size": 6}, "the arrays of the training data have 5, 24"),
        (FEATURES, {}, "the training data is a ndarray: give a tf.data.Dataset of global batches"),
        ([FEATURES], {"shuffle": True}, "shuffle=True is for arrays, and the data is a l"),
    ]:
        step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.05), "mse", micro_batch_size=4)
        with pytest.raises(ValueError, match=message):
            TrainingLoop(step, data, epochs=1, **options)


def test_progress_option(capsys, monkeypatch):
    from trainer_module.loop import progress_log

    monkeypatch.setattr(progress_log, "_is_handled", lambda logger: False)
    step = TrainStep(full_batch.mlp(), keras.optimizers.SGD(0.05), "mse", micro_batch_size=4)
    TrainingLoop(step, (FEATURES, LABELS), epochs=2, batch_size=6).fit()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("step 1/8 epoch 1/2 loss ")
    assert lines[-2].startswith("step 8/8 epoch 2/2 loss ")
    assert lines[-1] == "training ended by epochs after 8 steps"
    TrainingLoop(step, (FEATURES, LABELS), epochs=2, batch_size=6, progress=False).fit()
    assert capsys.readouterr().err == ""
