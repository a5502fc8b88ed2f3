"""Find the largest micro-batch whose step fits into memory, by steps in child processes."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from shared_core.nearest import nearest
from trainer_module.common.names import import_dotted
from trainer_module.common.progress import MemoryProbe, MicroBatchFound, attached
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.devices.memory_budget import (
    format_bytes,
    free_gpu_memory,
    free_machine_memory,
    parse_memory_budget,
)
from trainer_module.devices.strategies import grow_gpu_memory, replica_devices
from trainer_module.memory import known_sizes
from trainer_module.memory.micro_batch_search import Choice, DoesNotFit, MemoryNeed, search
from trainer_module.memory.probe import ProbeRequest, StepOption
from trainer_module.memory.probe_process import measure_in_child
from trainer_module.memory.request_hash import request_hash
from trainer_module.options.step_options import StepOptions

BuiltStep: TypeAlias = tuple[keras.Model, keras.optimizers.Optimizer, LossLike]
BuildStep: TypeAlias = Callable[..., BuiltStep]
Source: TypeAlias = Literal["measured", "cache", "record"]

# The search measures windows of at most so many micro-batches. They take less time than a whole one
# and, except for the rows of the global batch, as much memory.
_MOST_MICRO_BATCHES = 16


class MemoryBudgetError(ValueError):
    """A step of one row needs more than the memory budget."""


class MicroBatchSize(NamedTuple):
    """The largest micro-batch size that fits.

    Attributes:
        rows: The micro-batch size, per replica.
        bytes: Measured need of a step: model, optimizer, global batch, activations and gradients;
            on the GPU that needs most, or on all CPU devices together.
        budget: The budget, in bytes.
        next_rows: The next larger size; None if `rows` is a replica's whole part.
        next_bytes: Least need of that size, measured or predicted.
        source: "measured" now, from the "cache", or from the "record" of this run.
    """

    rows: int
    bytes: int
    budget: int
    next_rows: int | None
    next_bytes: int | None
    source: Source


def find_micro_batch_size(
    build: BuildStep | str,
    batch: Tensors | Callable[[keras.Model], Tensors],
    *,
    global_batch_size: int,
    arguments: Sequence[object] = (),
    strategy: tf.distribute.Strategy | None = None,
    memory_budget: int | str = "80%",
    cache_dir: str | None = None,
    record_dir: str | None = None,
    **step_options: StepOption,
) -> MicroBatchSize:
    """Return the largest micro-batch size whose step fits into the memory budget.

    Candidates are the powers of two, and a replica's whole part, ceil(global batch / replicas). A
    child process builds the model and takes two real steps of a size, so running out of memory is a
    valid result. A search usually takes two to five processes. Each starts TensorFlow, traces the
    step and runs it twice.

    Call it before you build the model, so that its memory is free for the child processes. To hash
    the request, it builds and drops a separate model: seed random numbers afterwards.

    Args:
        build: Returns (model, optimizer, loss) for `TrainStep`; called in the strategy's scope. A
            function that a child process can import, or its dotted path.
        batch: (features, labels) or (features, labels, weights) of at least one row, as the step
            will receive it; or a function from the model to such a batch.
        global_batch_size: Rows of one optimizer step, over all replicas.
        arguments: Arguments of `build`; they are pickled.
        strategy: Default: the current strategy.
        memory_budget: Bytes, "4GiB", or a share of the free memory, "80%": per GPU, or of the
            machine (and its control group) for all its CPU devices together.
        cache_dir: Folder that keeps measured sizes for later runs; None: the user's cache folder.
        record_dir: Folder that keeps the size for this run. After a restart with the same budget
            setting, the run gets the same size, however much memory is free then.
        **step_options: Further arguments of `TrainStep`, such as jit_compile and ema_momentum.

    Raises:
        MemoryBudgetError: Not even one row fits.
        ValueError: An argument is wrong, or `build` or `TrainStep` reject it.
        RuntimeError: A child process failed for another reason than memory.
    """
    _check(global_batch_size, memory_budget, step_options)
    path, function = _importable(build)
    # Listing devices starts TensorFlow, which then takes all GPU memory. If it has started already,
    # `_free_memory` raises the error for replicas on GPUs.
    with contextlib.suppress(ValueError):
        grow_gpu_memory()
    over = strategy or tf.distribute.get_strategy()
    devices = replica_devices(over)
    # This process's part of a global batch; other processes may have replicas, too.
    rows = math.ceil(global_batch_size * len(devices) / over.num_replicas_in_sync)
    with tf.device("CPU:0"):
        model, optimizer, loss = _check_built(function(*arguments), path)
        example = _example(batch(model) if callable(batch) else batch)
    request = ProbeRequest(
        build=path,
        arguments=tuple(arguments),
        batch=example,
        devices=devices,
        counter="resident" if devices[0].startswith("CPU") else "allocator",
        micro_batch_size=1,
        global_batch_rows=rows,
        window_rows=rows,
        limit_bytes=None,
        step_options=step_options,
        keras_options={
            "floatx": keras.config.floatx(),
            "dtype_policy": keras.config.dtype_policy().name,
            "image_data_format": keras.config.image_data_format(),
        },
    )
    key = request_hash(model, optimizer, loss, request, function)
    del model, optimizer, loss
    gc.collect()
    found = _look_up_or_measure(key, request, memory_budget, cache_dir, record_dir)
    _log_size(found, devices)
    return found


def _look_up_or_measure(
    key: str,
    request: ProbeRequest,
    memory_budget: int | str,
    cache_dir: str | None,
    record_dir: str | None,
) -> MicroBatchSize:
    record_file = record_dir and os.path.join(record_dir, f"micro_batch_size-{key[:16]}.json")
    entry = known_sizes.load(record_file, key) if record_file else None
    if entry is not None and entry.memory_budget == str(memory_budget):
        return _with_source(entry, "record")
    free = _free_memory(request.devices)
    budget = parse_memory_budget(memory_budget).of(free)
    cache_file = os.path.join(cache_dir or known_sizes.default_folder(), f"{key[:32]}.json")
    entry = known_sizes.load(cache_file, key)
    source = "cache"
    if entry is None or not entry.answers(budget):
        try:
            choice = _search(request, budget, free)
        except DoesNotFit as error:
            text = _budget_error(request, memory_budget, budget, free, error.need)
            raise MemoryBudgetError(text) from None
        entry = known_sizes.KnownSize(
            key=key, budget=budget, memory_budget=str(memory_budget), **choice._asdict()
        )
        known_sizes.store(cache_file, entry)
        source = "measured"
    entry = entry.model_copy(update={"budget": budget, "memory_budget": str(memory_budget)})
    if record_file:
        known_sizes.store(record_file, entry)
    return _with_source(entry, source)


def _search(request: ProbeRequest, budget: int, free: int) -> Choice:
    whole = request.global_batch_rows
    replicas = len(request.devices)
    largest = math.ceil(whole / replicas)
    full_windows: dict[int, MemoryNeed] = {}

    def take(size: int, window_rows: int) -> MemoryNeed:
        logging.get_absl_logger().info(
            "Measuring the memory of micro-batches of %d rows",
            size,
            extra=attached(MemoryProbe(size)),
        )
        need = measure_in_child(
            dataclasses.replace(
                request,
                micro_batch_size=size,
                window_rows=window_rows,
                # The need of one row is reported even if it exceeds the budget.
                limit_bytes=free if size == 1 else min(free, budget),
            )
        )
        if window_rows == whole:
            full_windows[size] = need
        return need

    def measure(size: int) -> MemoryNeed:
        return take(size, min(whole, size * replicas * _MOST_MICRO_BATCHES))

    def verify(size: int) -> MemoryNeed:
        return full_windows[size] if size in full_windows else take(size, whole)

    return search(largest, budget, measure, verify)


def _check(
    global_batch_size: int, memory_budget: int | str, step_options: dict[str, StepOption]
) -> None:
    if global_batch_size < 1:
        raise ValueError(f"global_batch_size={global_batch_size}: use at least 1 row.")
    try:
        parse_memory_budget(memory_budget)
    except ValueError as error:
        raise ValueError(f"memory_budget={memory_budget!r}: {error}.") from None
    known = StepOptions.model_fields.keys() - {"micro_batch_size"}
    for option in step_options:
        if option not in known:
            raise ValueError(f"{option!r} is not an argument here; {nearest(option, known)}")


def _importable(build: BuildStep | str) -> tuple[str, BuildStep]:
    """Return the dotted path of the function, and the function."""
    if isinstance(build, str):
        return build, import_dotted(build, field="build")
    module, name = build.__module__, build.__qualname__
    if module == "__main__" or getattr(sys.modules[module], name, None) is not build:
        raise ValueError(
            f"build={module}.{name} cannot be imported by another process: define it at the top "
            "level of a module other than the script that runs, and pass that function."
        )
    return f"{module}.{name}", build


def _check_built(made: object, path: str) -> BuiltStep:
    if not (isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], keras.Model)):
        raise ValueError(
            f"build={path} returned {type(made).__name__}: return (model, optimizer, loss), the "
            "model a keras.Model."
        )
    return made


def _example(batch: Tensors) -> tuple[Tensors, ...]:
    """Return a few rows of the batch as NumPy arrays; memory depends little on the values."""
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError("batch: give (features, labels) or (features, labels, sample_weight).")
    arrays = tf.nest.map_structure(np.asarray, tuple(batch))
    counts = {len(array) for array in tf.nest.flatten(arrays) if array.ndim}
    if len(counts) != 1 or counts == {0}:
        raise ValueError(
            f"batch: its tensors have {sorted(counts)} rows; give the same number, at least 1."
        )
    return tf.nest.map_structure(lambda array: array[:8], arrays)


def _free_memory(devices: tuple[str, ...]) -> int:
    if devices[0].startswith("CPU"):
        return free_machine_memory()
    grow_gpu_memory()
    return min(free_gpu_memory(int(device.rpartition(":")[2])) for device in devices)


def _with_source(entry: known_sizes.KnownSize, source: Source) -> MicroBatchSize:
    shown = entry.model_dump(include=set(MicroBatchSize._fields))
    return MicroBatchSize(**shown, source=source)


def _log_size(found: MicroBatchSize, devices: tuple[str, ...]) -> None:
    source = {
        "measured": "measured now",
        "cache": "measured by an earlier run",
        "record": "measured when this run began",
    }[found.source]
    beyond = ""
    if found.next_rows is not None and found.next_bytes is not None:
        beyond = f"; {found.next_rows} would need {format_bytes(found.next_bytes)} or more"
    logging.get_absl_logger().info(
        "micro_batch_size: %d rows%s need %s of the budget of %s%s (%s)",
        found.rows,
        f" on each of {len(devices)} devices" if len(devices) > 1 else "",
        format_bytes(found.bytes),
        format_bytes(found.budget),
        beyond,
        source,
        extra=attached(MicroBatchFound(**found._asdict())),
    )


def _budget_error(
    request: ProbeRequest, memory_budget: int | str, budget: int, free: int, need: MemoryNeed
) -> str:
    place = f"on each of {len(request.devices)} devices " if len(request.devices) > 1 else ""
    needs = f"needs {format_bytes(need.bytes)}"
    if not need.finished:
        needs = f"was stopped or killed when {format_bytes(free)} were free"
    return (
        f"memory_budget={memory_budget!r} is {format_bytes(budget)}, and a step of micro-batches "
        f"of 1 row {place}{needs}: raise memory_budget, free memory, or make the model, its "
        "optimizer's state or the global batch smaller."
    )
