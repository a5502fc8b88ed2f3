"""A learning-rate range test: train a few windows at growing rates, select a stable rate.

    rate_i = lowest (highest / lowest)^(i / (windows - 1))
    smoothed_i = a mean of the losses until then, each older one weighing 0.9 as much
    stop where the loss is not finite, or smoothed is 4 times its least
    rate = a tenth of that with the least smoothed loss

The test is from L. N. Smith, "Cyclical Learning Rates for Training Neural Networks" (2015), 3.3.
The growth by a factor, the smoothing, the stop and the tenth are those of fastai's `lr_find`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.compiled import is_several
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import Tensors
from trainer_module.data.dataset_steps import has_reshuffle
from trainer_module.data.epoch_data import BatchSource, as_batches
from trainer_module.step.reports import NonFiniteError
from trainer_module.step.train_step import SavedState, TrainStep

LOWEST, HIGHEST, WINDOWS = 1e-6, 10.0, 200
_OLDER = 0.9
_DIVERGED = 4.0
_SHARE = 0.1


class RangeTest(NamedTuple):
    """Result of a range test.

    Attributes:
        rate: The rate to train with; the peak if there is a schedule.
        rates: The tested rates, in order.
        losses: Loss of the window at each rate, before its update.
        smoothed: The smoothed losses.
        diverged: Whether divergence at the last rate ended the test.
    """

    rate: float
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    diverged: bool

    @property
    def best(self) -> int:
        """Index of the least smoothed loss."""
        return int(np.argmin(self.smoothed))

    def to_csv(self) -> str:
        """Return CSV text with a row for each window: learning_rate, loss, smoothed_loss."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["learning_rate", "loss", "smoothed_loss"])
        writer.writerows(zip(self.rates, self.losses, self.smoothed, strict=True))
        return table.getvalue()


def find_learning_rate(
    train_step: TrainStep,
    batches: BatchSource,
    *,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    seed: int | None = None,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    windows: int = WINDOWS,
) -> RangeTest:
    """Train windows at growing learning rates, then restore the previous state.

    Model, optimizer (including its learning rate), averages, counters and random state are restored
    bit for bit.

    Args:
        train_step: Runs the windows. Its optimizer must have a number as learning rate.
        batches: Global batches as in `TrainingLoop`, repeated as often as needed.
        batch_size: As in `TrainingLoop`.
        shuffle: As in `TrainingLoop`.
        seed: As in `TrainingLoop`.
        lowest: The first rate.
        highest: The last rate, if the loss does not diverge before.
        windows: Number of rates.

    Raises:
        ValueError: The rates are invalid, the optimizer's rate cannot be set, the dataset
            reshuffles (so that training would see another order afterwards), there is no batch, or
            the loss falls at no rate.
    """
    check_positive_int("windows", windows)
    if not 0 < lowest < highest < math.inf or windows < 10:
        raise ValueError(
            f"lowest={lowest}, highest={highest}, windows={windows}: give 0 < lowest < highest and "
            "at least 10 windows."
        )
    _check_optimizer(train_step.optimizer)
    if isinstance(batches, tf.data.Dataset) and has_reshuffle(batches):
        raise ValueError(
            "batches has another order in each iterator, so that training after this would see "
            "another order. Use shuffle(..., reshuffle_each_iteration=False), or give a "
            "function from the epoch's number to a dataset, or arrays with batch_size."
        )
    data = as_batches(batches, batch_size=batch_size, shuffle=shuffle, seed=seed)
    before = SavedState(train_step)
    try:
        found = _run_test(train_step, _repeat_batches(data), np.geomspace(lowest, highest, windows))
    finally:
        before.restore()
    return found


def _run_test(step: TrainStep, batches: Iterator[Tensors], rates: np.ndarray) -> RangeTest:
    losses: list[float] = []
    smoothed: list[float] = []
    mean = weight = 0.0
    diverged = False
    for rate, batch in zip(rates, batches, strict=False):
        loss = _loss_at(step, float(rate), batch)
        if not math.isfinite(loss):
            diverged = True
            break
        mean = _OLDER * mean + (1 - _OLDER) * loss
        weight = _OLDER * weight + (1 - _OLDER)
        losses.append(loss)
        smoothed.append(mean / weight)
        least = min(smoothed)
        # For losses that can be negative, as a likelihood's, use the fall from the first loss.
        if smoothed[-1] - least > (_DIVERGED - 1) * max(abs(least), smoothed[0] - least):
            diverged = True
            break
    best = int(np.argmin(smoothed)) if smoothed else 0
    if best == 0:
        raise ValueError(
            f"no learning rate from {rates[0]:g} to {rates[-1]:g} lowers the loss"
            + (f" ({losses[0]:g} in the first window)" if losses else ", which is not finite")
            + ": look at labels and features, or give a number."
        )
    tried = tuple(float(rate) for rate in rates[: len(losses)])
    return RangeTest(
        rate=_SHARE * tried[best],
        rates=tried,
        losses=tuple(losses),
        smoothed=tuple(smoothed),
        diverged=diverged,
    )


def _loss_at(step: TrainStep, rate: float, batch: Tensors) -> float:
    with step.strategy.scope():
        step.optimizer.learning_rate = rate
    try:
        return float(step(batch).loss)
    except NonFiniteError:
        return math.nan


def _repeat_batches(batches: BatchSource) -> Iterator[Tensors]:
    epoch = 0
    while True:
        count = 0
        of_epoch: BatchSource = batches(epoch) if callable(batches) else batches
        for batch in of_epoch:
            count += 1
            yield batch
        if not count:
            raise ValueError("the training data has no batch: check the split and its files.")
        epoch += 1


def _check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    schedule = keras.optimizers.schedules.LearningRateSchedule
    if is_several(optimizer) or isinstance(getattr(optimizer, "_learning_rate", None), schedule):
        what = "several optimizers" if is_several(optimizer) else "a schedule"
        raise ValueError(
            f"the optimizer has {what}, whose learning rate cannot be set: search with one of a "
            "number, and take what is found as the schedule's peak."
        )
