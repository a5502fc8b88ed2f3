"""Epochs of `steps_per_epoch`: the batches that `keras.Model.fit` takes, also after a kill.

Reference: `keras.Model.fit` itself, and bit for bit the run that was not killed.
"""

from __future__ import annotations

import functools

import keras
import numbered_batches
import pytest
from numbered_batches import kinds, known, linear, mean_output, unknown

from trainer_module.loop.callback import Callback
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep


class Taken(Callback):
    """The numbers of the batches of each epoch, which are their losses."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[int]] = {}

    def on_loop(self, progress):
        self.epochs.setdefault(progress.epoch, []).append(round(progress.loss))
        return False


class Killed(Callback):
    """Fails after a step, as a kill would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_loop_begin(self):
        if self.at == 0:
            raise KeyboardInterrupt
        self.at -= 1


class Totals(Callback):
    def __init__(self) -> None:
        self.printed: list[int | None] = []

    def on_loop(self, progress):
        self.printed.append(progress.total_steps)
        return False


@functools.cache
def traced(strategy):
    """A step, an evaluation on two batches, and the step's first values: traced once."""
    keras.utils.set_random_seed(1)
    step = TrainStep(*linear(0.0, strategy), mean_output, micro_batch_size=1, strategy=strategy)
    return step, Evaluation(step.model, mean_output, known(2), strategy=strategy), SavedState(step)


def loop(
    data,
    length,
    *,
    steps_per_epoch,
    steps_per_loop=1,
    folder=None,
    rate=0.0,
    evaluated=False,
    strategy=None,
    **options,
):
    """A loop whose step has not been taken: the step of an earlier loop can no longer be read."""
    step, evaluate, initial = traced(strategy)
    initial.restore()
    step.optimizer.learning_rate = rate
    return TrainingLoop(
        step,
        data,
        **length,
        steps_per_epoch=steps_per_epoch,
        steps_per_loop=steps_per_loop,
        evaluate=evaluate if evaluated else None,
        checkpoints=folder and Checkpoints(str(folder), step, every_steps=1, share_of_time=None),
        progress=False,
        **options,
    )


def taken(data, epochs, steps_per_epoch, **options) -> list[list[int]]:
    note = Taken()
    loop(
        data, {"epochs": epochs}, steps_per_epoch=steps_per_epoch, callbacks=[note], **options
    ).fit()
    return [note.epochs.get(epoch, []) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize(
    ("kind", "count", "steps_per_epoch"),
    [
        ("known", 10, 4),
        ("unknown", 8, 4),
        ("unknown", 3, 5),
        ("filtered", 3, 4),
        ("endless_generator", 3, 4),
    ],
)
def test_the_batches_of_each_epoch_are_those_of_keras_fit(kind, count, steps_per_epoch):
    epochs = 4
    expected = numbered_batches.by_keras(kinds[kind](count), epochs, steps_per_epoch)
    if kind == "unknown" and [] in expected:
        # Keras' fit of a generator has an epoch without a batch where one ends with the data; of
        # data whose length it knows it has none, and neither have we.
        expected = numbered_batches.by_keras(known(count), epochs, steps_per_epoch)
    assert taken(kinds[kind](count), epochs, steps_per_epoch) == expected


def test_arrays_in_their_order_are_cut_as_by_keras_fit():
    features, labels = numbered_batches.arrays(10)
    expected = numbered_batches.by_keras((features, labels), 4, 4)
    found = taken((features, labels), 4, 4, batch_size=2, shuffle=False)
    assert found == expected == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]


def test_a_function_of_the_epoch_gives_each_its_first_batches(warnings):
    found = taken(lambda epoch: known(5).skip(epoch), 3, 3)
    assert found == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert warnings == []
    assert taken(lambda epoch: unknown(5).skip(epoch), 4, 3)[2:] == [[2, 3, 4], [3, 4]]
    assert len(warnings) == 1


def test_short_epoch_is_reported_once(warnings):
    taken(unknown(10), 7, 4)
    (line,) = warnings
    assert "Epoch 3 has 2 batches instead of steps_per_epoch=4" in line
    assert "dataset.repeat()" in line


def test_steps_end_within_an_epoch():
    note = Taken()
    made = loop(unknown(10), {"steps": 11}, steps_per_epoch=4, callbacks=[note])
    assert made.fit().epochs == 4
    assert note.epochs == {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9], 4: [0]}


@pytest.mark.parametrize(("count", "total"), [(10, 4 + 4 + 2 + 4 + 4), (3, 5 * 3)])
def test_the_steps_of_all_epochs_are_known_in_advance(count, total):
    totals = Totals()
    result = loop(known(count), {"epochs": 5}, steps_per_epoch=4, callbacks=[totals]).fit()
    assert set(totals.printed) == {total}
    assert result.steps == total


def test_failed_fit_loses_no_batch():
    """The iterator may have given more than was trained on."""
    note = Taken()
    made = loop(unknown(10), {"epochs": 3}, steps_per_epoch=4, callbacks=[note, Killed(7)])
    with pytest.raises(KeyboardInterrupt):
        made.fit()
    made.callbacks.all[1].at = 100
    made.fit()
    assert note.epochs == {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9]}
