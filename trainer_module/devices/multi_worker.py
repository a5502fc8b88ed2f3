"""One strategy over several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version

import keras
import tensorflow as tf
from absl import logging
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context as eager_context

from trainer_module.devices.replicas import is_multi_worker
from trainer_module.devices.worker_group import (
    SINGLE_PROCESS,
    WorkerGroup,
    connect_workers,
    current_workers,
)

_Implementation = tf.distribute.experimental.CommunicationImplementation
# TensorFlow can start one server and one set of collectives in a process.
_strategies: dict[int | None, tf.distribute.Strategy] = {}


def multi_worker_strategy(
    *,
    logical_devices: int | None,
    start_timeout_seconds: float,
    worker_timeout_seconds: float,
) -> tf.distribute.Strategy:
    """Return the strategy over all workers of TF_CONFIG, which must have several.

    Raises:
        Disagreement: Workers have different versions or devices.
        WorkerLost: Not all workers connected in time.
        ValueError: This process has already used TensorFlow.
    """
    gpus = tf.config.list_physical_devices("GPU")
    workers = connect_workers(
        start_timeout_seconds=start_timeout_seconds, worker_timeout_seconds=worker_timeout_seconds
    )
    with workers.reporting_failures():
        physical = tf.config.list_physical_devices("CPU")[0]
        configured = len(tf.config.get_logical_device_configuration(physical) or [None])
        devices = None if gpus else logical_devices or configured
        workers.assert_same_on_all_workers(
            "software and devices",
            {
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
                "tfx-largebatch": version("tfx-largebatch"),
                "logical CPU devices" if not gpus else "GPUs": devices or len(gpus),
            },
        )
        if devices not in _strategies:
            _strategies[devices] = _strategy(devices)
            # It releases a main thread that waits in a collective for a lost worker: there is no
            # public function for it, and a collective has no timeout.
            abort = eager_context.context().abort_collective_ops
            workers.on_worker_lost(lambda message: abort(tf.errors.UNAVAILABLE, message))
    strategy = _strategies[devices]
    logging.info(
        "Worker %d of %d, with %d of %d replicas",
        workers.number,
        workers.size,
        len(strategy.extended.worker_devices),
        strategy.num_replicas_in_sync,
    )
    return strategy


def worker_group(strategy: tf.distribute.Strategy) -> WorkerGroup:
    """Return the workers of a strategy; `SINGLE_PROCESS` for a single process."""
    if not is_multi_worker(strategy):
        return SINGLE_PROCESS
    if current_workers().size == 1:
        raise ValueError(
            "the strategy has several workers and was not made by create_strategy, which connects "
            "them to agree on who writes and when to stop. Use "
            'trainer_module.create_strategy("multi_worker").'
        )
    return current_workers()


def _strategy(cpus: int | None) -> tf.distribute.Strategy:
    implementation = _Implementation.AUTO if cpus is None else _Implementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with _cpu_devices_per_worker(cpus or 1):
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ValueError(
            "strategy='multi_worker' has to come before anything else uses TensorFlow in this "
            f"process ({error}): call create_strategy first, or run the training in a separate "
            "process."
        ) from error


@contextlib.contextmanager
def _cpu_devices_per_worker(count: int) -> Iterator[None]:
    """Let a MultiWorkerMirroredStrategy that is created in the block use `count` CPU devices.

    TensorFlow gives each worker all of its GPUs, but only one logical CPU device. The method that
    lists the devices is private. The collectives work with any number and kind of devices.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_local_devices
    if count == 1:
        yield
        return

    def list_cpu_devices(
        self: object, cluster_resolver: object, worker_device: str
    ) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

    extended._initialize_local_devices = list_cpu_devices
    try:
        yield
    finally:
        extended._initialize_local_devices = original
