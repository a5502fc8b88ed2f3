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
import dataclasses
import io
import json
import math
import os
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.checks.compiled import is_several
from trainer_module.common.tensors import Json, Tensors
from trainer_module.common.user_values import check_positive_int
from trainer_module.data.dataset_steps import has_reshuffle
from trainer_module.data.epoch_data import BatchSource, as_batches
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.multi_worker import worker_group
from trainer_module.model.optimizers import create_optimizer
from trainer_module.model.plan import Plan
from trainer_module.step.reports import NonFiniteError
from trainer_module.step.train_step import SavedState, TrainStep
from trainer_module.tuning.hyperparameters import Setting

_LOWEST, _HIGHEST, _WINDOWS = 1e-6, 10.0, 200
_OLDER = 0.9
_DIVERGED = 4.0
_SHARE = 0.1


class _RangeTest(NamedTuple):
    """Result of a range test."""

    rate: float  # the rate to train with; the peak if there is a schedule
    rates: tuple[float, ...]
    losses: tuple[float, ...]  # loss of the window at each rate, before its update
    smoothed: tuple[float, ...]
    diverged: bool  # whether divergence at the last rate ended the test

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
    lowest: float = _LOWEST,
    highest: float = _HIGHEST,
    windows: int = _WINDOWS,
) -> _RangeTest:
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


def _run_test(step: TrainStep, batches: Iterator[Tensors], rates: np.ndarray) -> _RangeTest:
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
    return _RangeTest(
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


_RECORD = "learning_rate.json"
_TABLE = "learning_rate.csv"


def with_learning_rate(
    plan: Plan,
    model: keras.Model,
    examples: Examples,
    strategy: tf.distribute.Strategy,
    *,
    micro_batch_size: int,
    shuffle_buffer_rows: int,
    record_dir: str | None,
    run_dir: str | None,
) -> Plan:
    """Return the plan with a number as learning rate; unchanged if it has one.

    The model is unchanged afterwards, bit for bit. The rate is kept for a restart in `record_dir`,
    a table of the test in `run_dir`, if they are given.

    Raises:
        ValueError: The loss falls at no rate.
    """
    config = plan.config
    if config.optimizer.learning_rate != "auto":
        return plan
    record = None if record_dir is None else os.path.join(record_dir, _RECORD)
    workers = worker_group(strategy)
    rate = workers.broadcast_from_chief(
        "learning_rate", None if record is None else _read_record(record)
    )
    if rate is None:
        batches = examples.shuffled_batches(
            config.batch_sizes.at(0), shuffle_buffer_rows=shuffle_buffer_rows, seed=config.seed
        )
        found = _range_test(plan, model, batches, strategy, micro_batch_size)
        rate = found.rate
        table = None if run_dir is None else os.path.join(run_dir, _TABLE)
        if table is not None and workers.is_chief:
            atomic_write_text(table, found.to_csv())
        if record is not None and workers.is_chief:
            atomic_write_text(record, json.dumps({"learning_rate": rate}) + "\n")
        _log_result(found, table)
    else:
        logging.info("Learning rate %.3g, which was found when this run began", rate)
    return _with_optimizer(plan, {"learning_rate": rate})


def _range_test(
    plan: Plan,
    model: keras.Model,
    batches: BatchSource,
    strategy: tf.distribute.Strategy,
    micro_batch_size: int,
) -> _RangeTest:
    with strategy.scope():
        constant = plan.config.optimizer.model_copy(update={"schedule": None})
        optimizer = create_optimizer(constant, total_steps=1)
    assert plan.loss is not None
    step = TrainStep(
        model,
        optimizer,
        plan.loss,
        micro_batch_size=micro_batch_size,
        strategy=strategy,
        expected_rows=plan.config.batch_sizes.at(0),
        **plan.step_options,
    )
    try:
        return find_learning_rate(step, batches)
    except ValueError as error:
        raise ValueError(f"trainer.optimizer.learning_rate='auto': {error}") from None


def _with_optimizer(plan: Plan, update: dict[str, Setting]) -> Plan:
    optimizer = plan.config.optimizer.model_copy(update=update)
    config = plan.config.model_copy(update={"optimizer": optimizer})
    return dataclasses.replace(plan, config=config)


def _read_record(path: str) -> float | None:
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as stream:
        try:
            rate: Json = json.loads(stream.read())["learning_rate"]
        except (ValueError, KeyError, TypeError):
            return None  # truncated by a kill: the test finds the same rate again
    return rate if isinstance(rate, float) and 0 < rate < math.inf else None


def _log_result(found: _RangeTest, table: str | None) -> None:
    logging.info(
        "Learning rate %.3g, a tenth of the %.3g at which the smoothed loss of %d windows of "
        "growing rate is lowest (%.4f, from %.4f)%s%s",
        found.rate,
        found.rates[found.best],
        len(found.rates),
        found.smoothed[found.best],
        found.smoothed[0],
        f"; it diverges at {found.rates[-1]:.3g}" if found.diverged else "",
        "" if table is None else f": {table}",
    )
