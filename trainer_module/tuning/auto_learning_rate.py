"""Resolve `optimizer.learning_rate: auto` by a range test before training, once per run."""

from __future__ import annotations

import dataclasses
import json
import math
import os

import keras
import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.json_values import Json
from trainer_module.data.epoch_data import BatchSource
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.multi_worker import worker_group
from trainer_module.model.optimizers import create_optimizer
from trainer_module.model.plan import Plan
from trainer_module.step.train_step import TrainStep
from trainer_module.tuning.hyperparameters import Setting
from trainer_module.tuning.learning_rate import RangeTest, find_learning_rate

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

    Args:
        plan: The resolved configuration, for a known kind of label.
        model: The model to train; unchanged afterwards, bit for bit.
        examples: The training rows.
        strategy: Where the replicas are.
        micro_batch_size: Rows of a micro-batch.
        shuffle_buffer_rows: As in training.
        record_dir: The run's folder, which keeps the rate for a restart; None: do not keep it.
        run_dir: Folder for a table of the test; None: write no table.

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
) -> RangeTest:
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


def _log_result(found: RangeTest, table: str | None) -> None:
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
