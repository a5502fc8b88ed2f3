"""Iterate over the batches of each epoch from any position: the same rows after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
from absl import logging

from trainer_module.common.tensors import Tensors
from trainer_module.common.user_values import check_positive_int
from trainer_module.data.dataset_steps import (
    has_reshuffle,
    random_operations,
    reshuffles_at_once,
    unseeded_shuffle,
)
from trainer_module.data.in_memory import ScheduledBatches, array_batches
from trainer_module.options.batch_sizes import BatchSizes

Batches = tf.data.Dataset | Callable[[int], tf.data.Dataset]

# A dataset, tensors with a batch size, or a function from the epoch to its batches.
BatchSource: TypeAlias = Any


def as_batches(
    data: BatchSource,
    *,
    batch_size: int | Mapping[int, int] | None,
    shuffle: bool | None,
    seed: int | None,
) -> Batches:
    """Return data as a dataset or as a function from the epoch to a dataset.

    `batch_size` (rows, or sizes by step), `shuffle` and `seed` are for arrays only.
    """
    if isinstance(data, tuple) and len(data) in (2, 3):
        if batch_size is None:
            raise ValueError("batch_size=None: arrays need the rows of a global batch.")
        if not isinstance(batch_size, Mapping):
            batch_size = check_positive_int("batch_size", batch_size)
        return array_batches(
            data, batch_size, shuffle=shuffle is not False, seed=0 if seed is None else seed
        )
    for name, value in (("batch_size", batch_size), ("shuffle", shuffle), ("seed", seed)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} is for arrays, and the data is a {type(data).__name__}: "
                "its elements are the global batches; batch and shuffle it before."
            )
    if isinstance(data, tf.data.Dataset) or callable(data):
        return data
    raise ValueError(
        f"the training data is a {type(data).__name__}: give a tf.data.Dataset of global batches, "
        "a function from the epoch's number to one, or a tuple of arrays (features, labels[, "
        "weights]) with batch_size=."
    )


class EpochData:
    """Iterators over the batches of one epoch after another.

    Without `steps_per_epoch` an epoch is one pass over the data. With it the data is one stream, as
    in `keras.Model.fit`: each epoch takes the next `steps_per_epoch` batches. An epoch that reaches
    the end of a pass has the remaining batches, and the next epoch starts the next pass. An
    infinite dataset is one stream, too. A function of the epoch has one pass for each epoch, and so
    has a schedule of batch sizes.

    If a dataset reshuffles for each iterator, the number of the pass determines its order. A
    process that begins with a later pass creates the iterators of the earlier passes, and reads
    them if it must.

    Attributes:
        steps: Batches of the epoch that began last; None if unknown.
        passes_over: Number of completed passes of the stream.
        taken: Batches of the stream's current pass that were trained on.
    """

    def __init__(
        self,
        batches: Batches,
        *,
        steps_per_epoch: int | None,
        must_resume: bool,
        needs_end: bool,
        by_epoch: bool,
    ) -> None:
        """Check the steps of a dataset.

        A position must be restored from a checkpoint, or be that of other workers, if
        `must_resume`. A function receives the number of the epoch if `by_epoch`, otherwise of the
        pass.
        """
        self._batches: BatchSource = batches
        self._steps_per_epoch = steps_per_epoch
        self._must_resume = must_resume
        self._needs_end = needs_end
        self._made = 0
        self._stream: Iterator[Tensors] | None = None
        self._stream_count = tf.data.UNKNOWN_CARDINALITY
        self._warned = False
        self._warned_of_end = False
        self.steps: int | None = None
        self.passes_over = 0
        self.taken = 0
        if isinstance(batches, tf.data.Dataset):
            self._check_dataset(batches)
            self._reshuffles = has_reshuffle(batches)
            is_endless = int(batches.cardinality()) == tf.data.INFINITE_CARDINALITY
        else:
            self._reshuffles = is_endless = False
        self._is_stream = not by_epoch and (steps_per_epoch is not None or is_endless)

    def begin(self, epoch: int, step_in_epoch: int, step: int) -> Iterator[Tensors]:
        """Return an iterator over the rest of an epoch, and set `steps` to the epoch's batches.

        `step_in_epoch` and `step` are the batches of it and in total that were taken before.
        """
        if self._is_stream:
            return self._stream_iterator(step_in_epoch, step)
        dataset = self._dataset(epoch, step - step_in_epoch)
        count = self._count(dataset)
        self.steps = count if count >= 0 else self._steps_per_epoch
        if self._steps_per_epoch is not None and count >= 0:
            self.steps = min(count, self._steps_per_epoch)
        if self._reshuffles:
            self._advance_to(epoch)
        self._made += 1
        return iter(dataset.skip(step_in_epoch) if step_in_epoch else dataset)

    def took(self, steps: int) -> None:
        """Count batches that were trained on."""
        if self._is_stream:
            self.taken += steps

    def end(self, epoch: int, step_in_epoch: int, *, exhausted: bool) -> None:
        """End an epoch; if the data has ended, the next epoch starts the next pass."""
        wanted = self._steps_per_epoch
        if wanted is not None and step_in_epoch < wanted and not self._warned_of_end:
            self._warned_of_end = True
            logging.warning(
                "Epoch %d has %d batches instead of steps_per_epoch=%d, because the training data "
                "ended. The next epoch starts at the beginning of the data. Use dataset.repeat(), "
                "or another steps_per_epoch, for epochs of equal length.",
                epoch + 1,
                step_in_epoch,
                wanted,
            )
        if self._is_stream and (exhausted or self.taken == self._stream_count):
            self.start_next_pass()

    def start_next_pass(self) -> bool:
        """Make the next `begin` start the next pass; return False if the last pass had no batch."""
        if not self._is_stream or self.taken == 0:
            return False
        self.passes_over, self.taken, self._stream = self.passes_over + 1, 0, None
        return True

    def forget_iterator(self) -> None:
        """Make the next `begin` continue after the last batch trained on, not from the iterator."""
        self._stream = None

    def restore(self, place: Mapping[str, int]) -> None:
        """Restore the position of a checkpoint, the value of `place`."""
        self.passes_over, self.taken = place["passes_over"], place["taken"]
        self._stream = None

    @property
    def place(self) -> dict[str, int]:
        """The position in a stream, as JSON."""
        return {"passes_over": self.passes_over, "taken": self.taken}

    @property
    def batch_sizes(self) -> BatchSizes | None:
        """The rows of the global batch of each step; None if the data decides them."""
        return self._batches.sizes if isinstance(self._batches, ScheduledBatches) else None

    def total_steps(self, epochs: int, step_in_epoch: int, step: int) -> int | None:
        """Return the batches of the next epochs, or None if unknown.

        The current epoch counts with all of its batches, of which `step_in_epoch` were taken.
        """
        data = self._batches
        if isinstance(data, ScheduledBatches) and not self._is_stream:
            return data.sizes.steps_of_passes(data.rows, step - step_in_epoch, epochs)
        most, count = self._steps_per_epoch, self._stream_count
        if most is None or not self._is_stream:
            per_epoch = self.steps if self.steps is not None else most
            return None if per_epoch is None else epochs * per_epoch
        if count < 0:
            return epochs * most
        per_pass = -(-count // most)
        before = (self.taken - step_in_epoch) // most
        passes, rest = divmod(before + epochs, max(per_pass, 1))
        return passes * count + rest * most - before * most

    def _dataset(self, number: int, first_step: int) -> tf.data.Dataset:
        if isinstance(self._batches, tf.data.Dataset):
            return self._batches
        if isinstance(self._batches, ScheduledBatches):
            return self._batches.starting_at(number, first_step)
        dataset = self._batches(number)
        self._check_dataset(dataset)
        return dataset

    def _count(self, dataset: tf.data.Dataset) -> int:
        count = int(dataset.cardinality())
        is_endless = count == tf.data.INFINITE_CARDINALITY
        if is_endless and self._steps_per_epoch is None and self._needs_end:
            raise ValueError(
                "the training data has no end, so that no epoch of it has: give "
                "steps_per_epoch=, or steps= in place of epochs=."
            )
        return count

    def _stream_iterator(self, step_in_epoch: int, step: int) -> Iterator[Tensors]:
        if self._stream is None:
            dataset = self._dataset(self.passes_over, step - self.taken)
            self._stream_count = self._count(dataset)
            if self._reshuffles:
                self._advance_to(self.passes_over)
            self._made += 1
            if self.taken:
                logging.info("Skipping the %d batches that were trained on", self.taken)
            self._stream = iter(dataset.skip(self.taken) if self.taken else dataset)
        self.steps = self._steps_per_epoch
        if self.steps is not None and self._stream_count >= 0:
            left = self._stream_count - self.taken
            self.steps = min(self.steps, step_in_epoch + left)
        return self._stream

    def _advance_to(self, number: int) -> None:
        dataset = self._batches
        if self._made > number:
            raise ValueError(
                f"the training data draws a new order for each iterator, and that of pass "
                f"{number + 1} is over in this process: start the program again to continue, or "
                "give a function of the epoch, lambda epoch: rows.shuffle(n, seed=epoch).batch(m)."
            )
        at_once = reshuffles_at_once(dataset)
        if self._made < number and not at_once:
            logging.info(
                "Reading %d passes over to find the order of the next", number - self._made
            )
        while self._made < number:
            iterator = iter(dataset)
            if not at_once:
                for _ in iterator:
                    pass
            self._made += 1

    def _check_dataset(self, dataset: tf.data.Dataset) -> None:
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
