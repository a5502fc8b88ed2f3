"""The batches of each epoch, from any place in it: the same rows after a kill as without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from trainer_module.common.whole_numbers import whole_number
from trainer_module.data.dataset_steps import (
    has_reshuffle,
    random_operations,
    reshuffles_at_once,
    unseeded_shuffle,
)
from trainer_module.data.in_memory import array_batches, listed_batches

Batches = tf.data.Dataset | Callable[[int], tf.data.Dataset]


def as_batches(
    data: Any, *, batch_size: int | None, shuffle: bool | None, seed: int | None
) -> Batches:
    """Returns what was given as data as a dataset or a function from the epoch to one.

    Args:
        data: As `TrainingLoop` takes it.
        batch_size: Rows of a global batch, for arrays only.
        shuffle: Whether to draw an order for each epoch, for arrays only; None is True.
        seed: Of the orders, for arrays only; None is 0.

    Raises:
        ValueError: It is none of these, or an option does not fit it.
    """
    is_arrays = isinstance(data, tuple) and len(data) in (2, 3)
    if is_arrays:
        if batch_size is None:
            raise ValueError("batch_size=None: arrays need the rows of a global batch.")
        rows = whole_number("batch_size", batch_size)
        return array_batches(
            data, rows, shuffle=shuffle is not False, seed=0 if seed is None else seed
        )
    for name, value in (("batch_size", batch_size), ("shuffle", shuffle), ("seed", seed)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} is for arrays, and the data is a {type(data).__name__}: "
                "its elements are the global batches; batch and shuffle it before."
            )
    if isinstance(data, tf.data.Dataset) or callable(data):
        return data
    if isinstance(data, list) and data and all(_is_batch(each) for each in data):
        return listed_batches(data)
    raise ValueError(
        f"the training data is a {type(data).__name__}: give a tf.data.Dataset of global batches, "
        "a function from the epoch's number to one, a tuple of arrays (features, labels[, weights])"
        " with batch_size=, or a list of such tuples, each a global batch."
    )


def _is_batch(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) in (2, 3)


class EpochData:
    """Iterators over the batches of one epoch after another.

    The order of a dataset that shuffles anew for each iterator is that of the epoch's number: a
    process that begins with a later epoch makes, or where it must reads, the iterators before it.
    A dataset without end is one stream, of which each epoch takes the next `steps_per_epoch`.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        steps_per_epoch: int | None,
        must_resume: bool,
        needs_end: bool,
    ) -> None:
        """Looks at a dataset's steps.

        Args:
            batches: As `as_batches` returns them.
            steps_per_epoch: Of a dataset without end.
            must_resume: Whether a checkpoint will have to find a place again, or other workers the
                same order.
            needs_end: Whether training ends after a number of epochs.

        Raises:
            ValueError: A place could not be found again: the dataset shuffles without a seed.
        """
        self._batches: Any = batches
        self._steps_per_epoch = steps_per_epoch
        self._must_resume = must_resume
        self._needs_end = needs_end
        self._made = 0
        self._stream: Any = None
        self._warned = False
        self.steps: int | None = None
        if isinstance(batches, tf.data.Dataset):
            self._look_at(batches)
            self._reshuffles = has_reshuffle(batches)
        else:
            self._reshuffles = False

    def begin(self, epoch: int, step_in_epoch: int, step: int) -> Iterator[Any]:
        """Returns an iterator over what is left of an epoch, and sets `steps` to its number.

        Args:
            epoch: From 0.
            step_in_epoch: Batches of it that were taken before.
            step: Batches that were taken in all.

        Raises:
            ValueError: A dataset without end and no steps_per_epoch, or an order that cannot be
                found again.
        """
        if isinstance(self._batches, tf.data.Dataset):
            dataset = self._batches
        else:
            dataset = self._batches(epoch)
            self._look_at(dataset)
        count = int(dataset.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            if self._steps_per_epoch is None and self._needs_end:
                raise ValueError(
                    "the training data has no end, so that no epoch of it has: give "
                    "steps_per_epoch=, or steps= in place of epochs=."
                )
            self.steps = self._steps_per_epoch
            return self._of_stream(dataset, epoch, step_in_epoch, step)
        self.steps = count if count >= 0 else None
        if self._reshuffles:
            self._wind_to(epoch)
        self._made += 1
        return iter(dataset.skip(step_in_epoch) if step_in_epoch else dataset)

    def _of_stream(self, dataset: Any, epoch: int, step_in_epoch: int, step: int) -> Iterator[Any]:
        if dataset is not self._batches:  # the function gives each epoch a stream of its own
            return iter(dataset.skip(step_in_epoch) if step_in_epoch else dataset)
        if self._stream is None:
            if step:
                logging.info("Reading over the %d batches that were trained on", step)
            self._stream = iter(dataset.skip(step) if step else dataset)
        return self._stream

    def _wind_to(self, epoch: int) -> None:
        dataset = self._batches
        if self._made > epoch:
            raise ValueError(
                f"the training data draws a new order for each iterator, and that of epoch "
                f"{epoch + 1} is over in this process: start the program again to continue, or "
                "give a function of the epoch, lambda epoch: rows.shuffle(n, seed=epoch).batch(m)."
            )
        at_once = reshuffles_at_once(dataset)
        if self._made < epoch and not at_once:
            logging.info("Reading %d epochs over to find the order of the next", epoch - self._made)
        while self._made < epoch:
            iterator = iter(dataset)
            if not at_once:
                for _ in iterator:
                    pass
            self._made += 1

    def _look_at(self, dataset: tf.data.Dataset) -> None:
        if not self._must_resume:
            return
        if unseeded_shuffle(dataset):
            raise ValueError(
                "the training data is shuffled without a seed, so that a run that continues from a "
                "checkpoint, or another worker, would train some rows twice and others not at all: "
                "write dataset.shuffle(n, seed=0)."
            )
        if not self._warned and (found := random_operations(dataset)):
            self._warned = True
            logging.warning(
                "The training data draws random numbers by %s, whose state no checkpoint holds: "
                "after a kill the same rows follow, with other numbers. tf.random.stateless_*, "
                "with a seed made of the epoch and the row, has no state.",
                ", ".join(found),
            )
