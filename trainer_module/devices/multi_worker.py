"""Create one strategy over several processes: MultiWorkerMirroredStrategy on a `WorkerGroup`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Literal

import keras
import tensorflow as tf
from absl import logging

from trainer_module.devices.patches import abort_collectives, cpu_devices_per_worker
from trainer_module.devices.worker_group import (
    SINGLE_PROCESS,
    WorkerGroup,
    connect_workers,
    current_workers,
)

Communication = Literal["auto", "ring", "nccl"]
COMMUNICATIONS: tuple[Communication, ...] = ("auto", "ring", "nccl")

_Implementation = tf.distribute.experimental.CommunicationImplementation
# TensorFlow can start one server and one set of collectives in a process.
_strategies: dict[tuple[int | None, str], tf.distribute.Strategy] = {}


def multi_worker_strategy(
    *,
    logical_devices: int | None,
    communication: Communication,
    start_timeout_seconds: float,
    worker_timeout_seconds: float,
) -> tf.distribute.Strategy:
    """Return the strategy over all workers of TF_CONFIG, which must have several.

    Args:
        logical_devices: CPU devices of each process without GPUs; None: the configured ones.
        communication: "ring", "nccl", or "auto": ring on CPUs, TensorFlow's choice on GPUs.
        start_timeout_seconds: See `connect_workers`.
        worker_timeout_seconds: See `connect_workers`.

    Raises:
        Disagreement: Workers have different versions, devices or communication.
        WorkerLost: Not all workers connected in time.
        ValueError: This process has already used TensorFlow, or nccl is set without GPUs.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if communication == "nccl" and not gpus:
        raise ValueError(
            "communication='nccl' is between GPUs, and TensorFlow sees none here: use 'ring' or "
            "'auto'."
        )
    workers = connect_workers(
        start_timeout_seconds=start_timeout_seconds, worker_timeout_seconds=worker_timeout_seconds
    )
    with workers.reporting_failures():
        devices = None if gpus else logical_devices or _configured_devices()
        workers.assert_same_on_all_workers(
            "software and devices",
            {
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
                "tfx-largebatch": version("tfx-largebatch"),
                "logical CPU devices" if not gpus else "GPUs": devices or len(gpus),
                "communication": communication,
            },
        )
        key = (devices, communication)
        if key not in _strategies:
            _strategies[key] = _strategy(
                devices, _implementation(communication, on_gpus=bool(gpus))
            )
            workers.on_worker_lost(abort_collectives)
    strategy = _strategies[key]
    logging.info(
        "Worker %d of %d, with %d of %d replicas",
        workers.number,
        workers.size,
        len(strategy.extended.worker_devices),
        strategy.num_replicas_in_sync,
    )
    return strategy


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the strategy has replicas in other processes."""
    return isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    ) and strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def worker_group(strategy: tf.distribute.Strategy) -> WorkerGroup:
    """Return the workers of a strategy; `SINGLE_PROCESS` for a single process.

    Raises:
        ValueError: There are several workers, but `create_strategy` has not connected them.
    """
    if not is_multi_worker(strategy):
        return SINGLE_PROCESS
    if current_workers().size == 1:
        raise ValueError(
            "the strategy has several workers and was not made by create_strategy, which connects "
            "them to agree on who writes and when to stop. Use "
            'trainer_module.create_strategy("multi_worker").'
        )
    return current_workers()


def _strategy(devices: int | None, implementation: _Implementation) -> tf.distribute.Strategy:
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with cpu_devices_per_worker(devices or 1):
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ValueError(
            "strategy='multi_worker' has to come before anything else uses TensorFlow in this "
            f"process ({error}): call create_strategy first, or run the training in a separate "
            "process."
        ) from error


def _implementation(communication: Communication, *, on_gpus: bool) -> _Implementation:
    if communication == "auto":
        return _Implementation.AUTO if on_gpus else _Implementation.RING
    return _Implementation.NCCL if communication == "nccl" else _Implementation.RING


def _configured_devices() -> int:
    physical = tf.config.list_physical_devices("CPU")[0]
    return len(tf.config.get_logical_device_configuration(physical) or [None])
