"""A checkpoint is not continued with data whose functions hold other values."""

from __future__ import annotations

import functools

import numbered_batches
import numpy as np
import pytest
import tensorflow as tf

from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep


@functools.cache
def traced():
    """A step and its first values: its graph is traced once."""
    step = TrainStep(*numbered_batches.linear(0.1), "mse", micro_batch_size=1)
    return step, SavedState(step)


def loop(folder, data, *, held_out=None, epochs=1, model_of_data=False):
    step, initial = traced()
    initial.restore()
    model = step.model
    if model_of_data:
        data = data.map(lambda x, y: (x, model(x)))
    return TrainingLoop(
        step,
        data,
        epochs=epochs,
        evaluate=held_out and Evaluation(model, "mse", held_out),
        checkpoints=Checkpoints(str(folder), step),
        progress=False,
    )


def centred(value, of=None):
    mean = tf.Variable(value)
    return (of or numbered_batches.known(3)).map(lambda x, y: (x - mean, y))


def by_epoch(value):
    rows = centred(value).unbatch()
    return lambda epoch: rows.shuffle(6, seed=epoch).batch(2)


@pytest.mark.parametrize("made", [centred, by_epoch])
def test_changed_captured_value_is_another_run(made, tmp_path):
    loop(tmp_path, made(1.0)).fit()
    with pytest.raises(ValueError, match=r"not the same as this one: data\..* was .* and is"):
        loop(tmp_path, made(2.0), epochs=2).fit()
    assert loop(tmp_path, made(1.0), epochs=2).fit().epochs == 2


def test_another_value_in_the_evaluation_is_another_run(tmp_path):
    data = numbered_batches.known(2)
    loop(tmp_path, data, held_out=centred(1.0)).fit()
    with pytest.raises(ValueError, match=r"evaluate\.data\.2 Map\.captured 0 was"):
        loop(tmp_path, data, held_out=centred(2.0), epochs=2).fit()


def test_restored_variables_do_not_identify_the_data(tmp_path):
    """The model in the data's function has other weights after training than at its start."""
    data = numbered_batches.known(3)
    loop(tmp_path, data, model_of_data=True).fit()
    again = loop(tmp_path, data, model_of_data=True, epochs=2)
    again.train_step.model.set_weights([np.full([1, 1], 7.0, "float32")])
    assert again.fit().epochs == 2
