"""Return the configured micro-batch size; measure `auto` once for each run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.json_values import Json
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.main_thread import doing
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.replicas import replica_devices
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.memory.micro_batch_size import MemoryBudgetError, find_micro_batch_size
from trainer_module.model.model_context import ModelContext, inputs_of
from trainer_module.model.plan import Plan, build_resolved


def micro_batch_rows(
    plan: Plan,
    context: ModelContext,
    train: Examples,
    total_steps: int,
    strategy: tf.distribute.Strategy,
    *,
    run: Mapping[str, Json],
    record_dir: str | None = None,
) -> int:
    """Return the rows of a micro-batch on one replica; with several workers, their smallest size.

    Args:
        plan: The resolved configuration.
        context: What the model is built from.
        train: The training rows.
        total_steps: Optimizer steps of the whole run.
        strategy: Where the replicas are.
        run: The run's fingerprint.
        record_dir: Folder that keeps the size. A restart of the run with the same devices and the
            same `memory_budget` gets it, however much memory is free then; None: do not keep it.

    Raises:
        MemoryBudgetError: Not even one row fits.
    """
    config = plan.config
    if config.micro_batch_size is None:
        return math.ceil(config.batch_sizes.largest / strategy.num_replicas_in_sync)
    if config.micro_batch_size != "auto":
        return config.micro_batch_size
    workers = worker_group(strategy)
    record = record_dir and os.path.join(record_dir, _record_name(plan, run, strategy))
    rows = _once_per_run(
        record, workers, lambda: _measure(plan, context, train, total_steps, strategy, workers)
    )
    keras.utils.set_random_seed(config.seed)  # `_measure` has drawn numbers for its own model
    return rows


def _once_per_run(record: str | None, workers: WorkerGroup, measure: Callable[[], int]) -> int:
    """Return the rows in the record, or measure the smallest of all workers and write it."""
    rows = workers.broadcast_from_chief("micro_batch_size", _read(record))
    if rows is not None:
        logging.info("micro_batch_size: %d rows, measured when this run began", rows)
        return rows
    rows = min(workers.gather("micro_batch_size of a worker", measure()))
    if workers.size > 1:
        logging.info("micro_batch_size: %d rows, which is what fits all workers", rows)
    if record and workers.is_chief:
        atomic_write_text(record, json.dumps({"micro_batch_size": rows}) + "\n")
    return rows


def _measure(
    plan: Plan,
    context: ModelContext,
    train: Examples,
    total_steps: int,
    strategy: tf.distribute.Strategy,
    workers: WorkerGroup,
) -> int:
    config = plan.config
    budget = _share_of_machine(config.memory_budget, workers)
    with tf.device("CPU:0"):  # a GPU's memory is for the child processes
        inputs = inputs_of(build_resolved(context, total_steps)[0], context)
    batches = train.narrowed(inputs).batches(1)
    try:
        # Child processes limit their own time.
        with doing("searching the micro_batch_size", limit="none"):
            return find_micro_batch_size(
                f"{build_resolved.__module__}.{build_resolved.__name__}",
                next(batches.take(1).as_numpy_iterator()),
                arguments=(context, total_steps),
                global_batch_size=config.batch_sizes.largest,
                strategy=strategy,
                memory_budget=budget,
                **plan.step_options,
            ).rows
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"trainer.{error}") from None


def _share_of_machine(budget: int | str, workers: WorkerGroup) -> int | str:
    """Return this worker's part of a share of free memory; the workers of a machine divide it."""
    if workers.size == 1 or not (isinstance(budget, str) and budget.endswith("%")):
        return budget
    here = workers.gather("machine", socket.gethostname())
    return f"{float(budget[:-1]) / here.count(socket.gethostname()):g}%"


def _record_name(plan: Plan, run: Mapping[str, Json], strategy: tf.distribute.Strategy) -> str:
    trainer = run["trainer"]
    settings = {**trainer, "optimizer": {**trainer["optimizer"], "learning_rate": None}}
    devices = [strategy.num_replicas_in_sync, *replica_devices(strategy)]
    text = json.dumps([{**run, "trainer": settings}, devices, plan.config.memory_budget])
    return f"micro_batch_size-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _read(record: str | None) -> int | None:
    if record is None or not tf.io.gfile.exists(record):
        return None
    with tf.io.gfile.GFile(record) as stream:
        return json.loads(stream.read())["micro_batch_size"]
