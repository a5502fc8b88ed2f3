"""Epochs of `steps_per_epoch`: the batches that `keras.Model.fit` takes, which is the reference."""

from __future__ import annotations

import functools

import numbered_batches
import pytest
from killed_loop import EndsAt
from numbered_batches import kinds, known, linear, mean_output, unknown

from trainer_module.loop.callback import Callback
from trainer_module.loop.training_loop import TrainingLoop
from trainer_module.step.train_step import SavedState, TrainStep


class Taken(Callback):
    """The numbers of the batches of each epoch, which are their losses."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[int]] = {}
        self.totals: set[int | None] = set()

    def on_loop(self, progress):
        self.epochs.setdefault(progress.epoch, []).append(round(progress.loss))
        self.totals.add(progress.total_steps)


@functools.cache
def traced():
    """A step and its first values: its graph is traced once."""
    step = TrainStep(*linear(0.0), mean_output, micro_batch_size=1)
    return step, SavedState(step)


def loop(data, *callbacks, **options):
    """A loop whose step has not been taken: the step of an earlier loop can no longer be read."""
    step, initial = traced()
    initial.restore()
    options = {"steps_per_loop": 1, "progress": False, **options}
    return TrainingLoop(step, data, callbacks=callbacks, **options)


def taken(data, epochs, steps_per_epoch, **options) -> list[list[int]]:
    note = Taken()
    loop(data, note, epochs=epochs, steps_per_epoch=steps_per_epoch, **options).fit()
    return [note.epochs.get(epoch, []) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize(
    ("kind", "count", "steps_per_epoch"),
    [
        ("arrays", 10, 4),
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
    options = {"batch_size": 2, "shuffle": False} if kind == "arrays" else {}
    assert taken(kinds[kind](count), epochs, steps_per_epoch, **options) == expected


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
    assert loop(unknown(10), note, steps=11, steps_per_epoch=4).fit().epochs == 4
    assert note.epochs == {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9], 4: [0]}


@pytest.mark.parametrize(("count", "total"), [(10, 4 + 4 + 2 + 4 + 4), (3, 5 * 3)])
def test_the_steps_of_all_epochs_are_known_in_advance(count, total):
    note = Taken()
    assert loop(known(count), note, epochs=5, steps_per_epoch=4).fit().steps == total
    assert note.totals == {total}


def test_failed_fit_loses_no_batch():
    """The iterator may have given more than was trained on."""
    note = Taken()
    made = loop(unknown(10), note, EndsAt(7), epochs=3, steps_per_epoch=4)
    with pytest.raises(KeyboardInterrupt):
        made.fit()
    made.fit()
    assert note.epochs == {1: [0, 1, 2, 3], 2: [4, 5, 6, 7], 3: [8, 9]}
