"""Find a micro-batch whose step fits into memory: halve it until a child process can run it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.checks.batch import check_batch
from trainer_module.common.progress import MemoryProbe, attached
from trainer_module.common.tensors import Json, LossLike, Tensors
from trainer_module.common.user_values import check_positive_int, import_dotted
from trainer_module.data.input_pipeline import Examples
from trainer_module.devices.memory_budget import (
    format_bytes,
    free_gpu_memory,
    free_machine_memory,
    parse_memory_budget,
)
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.replicas import replica_devices
from trainer_module.devices.strategies import grow_gpu_memory
from trainer_module.devices.worker_group import WorkerGroup
from trainer_module.memory.probe import ProbeRequest, StepOption, measure_in_child
from trainer_module.model.model_context import ModelContext, inputs_of
from trainer_module.model.plan import Plan, build_resolved

_KERAS_OPTIONS = ("floatx", "dtype_policy", "image_data_format")

_BuildStep: TypeAlias = Callable[..., tuple[keras.Model, keras.optimizers.Optimizer, LossLike]]


class MemoryBudgetError(ValueError):
    """A step of one row needs more than the memory budget."""


class _MicroBatchSize(NamedTuple):
    """A micro-batch size that fits."""

    rows: int  # the micro-batch size, per replica
    # Measured need of a step: model, optimizer, global batch, activations and gradients; on the GPU
    # that needs most, or on all CPU devices together
    bytes: int
    budget: int  # in bytes
    # The size that was tried before and did not fit; None if `rows` is a replica's whole part
    next_rows: int | None


def find_micro_batch_size(
    build: _BuildStep | str,
    batch: Tensors,
    *,
    global_batch_size: int,
    arguments: Sequence[object] = (),
    strategy: tf.distribute.Strategy | None = None,
    memory_budget: int | str = "80%",
    **step_options: StepOption,
) -> _MicroBatchSize:
    """Return a micro-batch size whose step fits into the memory budget.

    A child process builds the model and takes two real steps with a replica's whole part of the
    global batch as micro-batch. If they run out of memory or exceed the budget, another one takes
    half as many rows, and so on.

    Call it before you build the model, so that its memory is free for the child processes.

    Args:
        build: Returns (model, optimizer, loss) for `TrainStep`; called in the strategy's scope. A
            function that a child process can import, or its dotted path.
        batch: (features, labels) or (features, labels, weights) of at least one row, as the step
            will receive it.
        global_batch_size: Rows of one optimizer step, over all replicas.
        arguments: Arguments of `build`; they are pickled.
        strategy: Default: the current strategy.
        memory_budget: Bytes, "4GiB", or a share of the free memory, "80%": per GPU, or of the
            machine (and its control group) for all its CPU devices together.
        **step_options: Further arguments of `TrainStep`, such as jit_compile and ema_momentum.

    Raises:
        MemoryBudgetError: Not even one row fits.
        ValueError: An argument is wrong, or `build` or `TrainStep` reject it.
        RuntimeError: A child process failed for another reason than memory.
    """
    check_positive_int("global_batch_size", global_batch_size)
    try:
        allowed = parse_memory_budget(memory_budget)
    except ValueError as error:
        raise ValueError(f"memory_budget={memory_budget!r}: {error}.") from None
    # Listing devices starts TensorFlow, which then takes all GPU memory. If it has started already,
    # `_free_memory` raises the error for replicas on GPUs.
    with contextlib.suppress(ValueError):
        grow_gpu_memory()
    over = strategy or tf.distribute.get_strategy()
    devices = replica_devices(over)
    request = ProbeRequest(
        build=_importable(build),
        arguments=tuple(arguments),
        batch=_example(batch),
        devices=devices,
        # This process's part of a global batch; other processes may have replicas, too.
        global_batch_rows=math.ceil(global_batch_size * len(devices) / over.num_replicas_in_sync),
        step_options=step_options,
        keras_options={name: getattr(keras.config, name)() for name in _KERAS_OPTIONS},
    )
    free = _free_memory(devices)
    return _halve_until_it_fits(request, free, allowed.of(free), memory_budget)


def _halve_until_it_fits(
    request: ProbeRequest, free: int, budget: int, memory_budget: int | str
) -> _MicroBatchSize:
    devices = len(request.devices)
    rows, next_rows = math.ceil(request.global_batch_rows / devices), None
    while True:
        logging.get_absl_logger().info(
            "Measuring the memory of micro-batches of %d rows",
            rows,
            extra=attached(MemoryProbe(rows)),
        )
        # The need of one row is reported even if it exceeds the budget.
        limit = free if rows == 1 else min(free, budget)
        needed = measure_in_child(request._replace(micro_batch_size=rows, limit_bytes=limit))
        if needed is not None and needed <= budget:
            break
        if rows == 1:
            needs = f"was stopped or killed when {format_bytes(free)} were free"
            raise MemoryBudgetError(
                f"memory_budget={memory_budget!r} is {format_bytes(budget)}, and a step of "
                f"micro-batches of 1 row {f'on each of {devices} devices ' if devices > 1 else ''}"
                f"{needs if needed is None else f'needs {format_bytes(needed)}'}: raise "
                "memory_budget, free memory, or make the model, its optimizer's state or the "
                "global batch smaller."
            )
        rows, next_rows = math.ceil(rows / 2), rows
    logging.info(
        "micro_batch_size: %d rows%s need %s of the budget of %s%s",
        rows,
        f" on each of {devices} devices" if devices > 1 else "",
        format_bytes(needed),
        format_bytes(budget),
        f"; {next_rows} do not fit" if next_rows else "",
    )
    return _MicroBatchSize(rows, needed, budget, next_rows)


def _importable(build: _BuildStep | str) -> str:
    """Return the dotted path of the function."""
    if isinstance(build, str):
        import_dotted(build, field="build")
        return build
    module, name = build.__module__, build.__qualname__
    if module == "__main__" or getattr(sys.modules[module], name, None) is not build:
        raise ValueError(
            f"build={module}.{name} cannot be imported by another process: define it at the top "
            "level of a module other than the script that runs, and pass that function."
        )
    return f"{module}.{name}"


def _example(batch: Tensors) -> tuple[Tensors, ...]:
    """Return a few rows of the batch as NumPy arrays; memory depends little on the values."""
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError("batch: give (features, labels) or (features, labels, sample_weight).")
    arrays = tf.nest.map_structure(np.asarray, tuple(batch))
    check_batch(*arrays)
    if len(tf.nest.flatten(arrays)[0]) == 0:
        raise ValueError("batch has 0 rows: give at least 1.")
    features, labels, *weights = tf.nest.map_structure(lambda array: array[:8], arrays)
    # Weights of 0 would skip the optimizer.
    return features, labels, *tf.nest.map_structure(np.ones_like, weights)


def _free_memory(devices: tuple[str, ...]) -> int:
    if devices[0].startswith("CPU"):
        return free_machine_memory()
    grow_gpu_memory()
    return min(free_gpu_memory(int(device.rpartition(":")[2])) for device in devices)


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

    A restart of the run with the same devices and the same `memory_budget` gets the size that
    `record_dir` keeps, however much memory is free then.

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
    train = train.narrowed(inputs)
    features, *others = next(train.batches(1).take(1).as_numpy_iterator())
    longest = {name: np.maximum(features[name], 1) for name in train.token_features}
    try:
        return find_micro_batch_size(
            f"{build_resolved.__module__}.{build_resolved.__name__}",
            ({**features, **longest}, *others),
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
