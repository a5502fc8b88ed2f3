"""Return the configured micro-batch size, and measure `auto`."""

from __future__ import annotations

import json
import math
import os
import socket

import keras
import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.tensors import Tensors
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.memory.micro_batch_size import (
    MemoryBudgetError,
    MicroBatchSize,
    find_micro_batch_size,
)
from trainer_module.model.model_context import ModelContext, inputs_of
from trainer_module.model.plan import Plan, build_resolved


def micro_batch_rows(
    plan: Plan,
    context: ModelContext,
    train: Examples,
    total_steps: int,
    strategy: tf.distribute.Strategy,
    *,
    run_dir: str | None = None,
    record_dir: str | None = None,
) -> int:
    """Return the rows of a micro-batch on one replica; with several workers, their smallest size.

    Args:
        plan: The resolved configuration.
        context: What the model is built from.
        train: The training rows.
        total_steps: Optimizer steps of the whole run.
        strategy: Where the replicas are.
        run_dir: Folder for `micro_batch_size.json`, which describes the size; None: do not write
            it.
        record_dir: Folder that keeps the size for a restart of the run; None: do not keep it.

    Raises:
        MemoryBudgetError: Not even one row fits.
    """
    config = plan.config
    if config.micro_batch_size is None:
        return math.ceil(config.batch_sizes.largest / strategy.num_replicas_in_sync)
    if config.micro_batch_size != "auto":
        return config.micro_batch_size

    workers = worker_group(strategy)

    def first_rows(model: keras.Model) -> Tensors:
        rows = train.narrowed(inputs_of(model, context)).batches(1)
        return next(rows.take(1).as_numpy_iterator())

    try:
        budget = _share_of_machine(config.memory_budget, workers)
        # Another worker may have its size in the cache, and child processes limit their own time.
        with workers.doing("searching the micro_batch_size", limit="none"):
            found = find_micro_batch_size(
                f"{build_resolved.__module__}.{build_resolved.__name__}",
                first_rows,
                arguments=(context, total_steps),
                global_batch_size=config.batch_sizes.largest,
                strategy=strategy,
                memory_budget=budget,
                cache_dir=config.memory_cache_dir,
                record_dir=record_dir if workers.is_chief else None,
                **plan.step_options,
            )
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"trainer.{error}") from None
    keras.utils.set_random_seed(
        config.seed
    )  # the search has drawn random numbers for its own model
    if run_dir is not None and workers.is_chief:
        note = json.dumps(found._asdict(), indent=1)
        atomic_write_text(os.path.join(run_dir, "micro_batch_size.json"), f"{note}\n")
    if workers.size == 1:
        return found.rows
    return _smallest_of_workers(found, workers, record_dir)


def _share_of_machine(budget: int | str, workers: WorkerGroup) -> int | str:
    """Return this worker's part of a share of free memory; the workers of a machine divide it."""
    if workers.size == 1 or not (isinstance(budget, str) and budget.endswith("%")):
        return budget
    here = workers.gather("machine", socket.gethostname())
    return f"{float(budget[:-1]) / here.count(socket.gethostname()):g}%"


def _smallest_of_workers(
    found: MicroBatchSize, workers: WorkerGroup, record_dir: str | None
) -> int:
    """Return the smallest size of all workers; the same after a restart, however much is free."""
    rows = min(workers.gather("micro_batch_size", found.rows))
    record = record_dir and os.path.join(
        record_dir, f"micro_batch_size-{workers.size}-workers.json"
    )
    if workers.is_chief and record:
        kept: dict[str, int] = {}
        if found.source == "record" and tf.io.gfile.exists(record):
            with tf.io.gfile.GFile(record) as stream:
                kept = json.loads(stream.read())
        if kept.get("chief") == found.rows:
            rows = kept["rows"]
        else:
            atomic_write_text(record, json.dumps({"chief": found.rows, "rows": rows}))
    rows = workers.broadcast_from_chief("micro_batch_size of all", rows)
    if rows != found.rows:
        logging.info("micro_batch_size: %d rows, which is what fits all workers", rows)
    return rows
