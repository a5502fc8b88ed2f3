"""One strategy over several processes: MultiWorkerMirroredStrategy on a `WorkerGroup`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Literal

import keras
import tensorflow as tf
from absl import logging
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context as eager_context

from trainer_module.devices.worker_group import (
    SINGLE_PROCESS,
    WorkerGroup,
    connect_workers,
    current_workers,
)

Communication = Literal["auto", "ring", "nccl"]
COMMUNICATIONS: tuple[Communication, ...] = ("auto", "ring", "nccl")

_IMPLEMENTATION = tf.distribute.experimental.CommunicationImplementation
# TensorFlow starts one server in a process, and one set of collectives.
_made: dict[tuple[int | None, str], tf.distribute.Strategy] = {}


def multi_worker_strategy(
    *,
    logical_devices: int | None,
    communication: Communication,
    start_timeout_seconds: float,
    worker_timeout_seconds: float,
) -> tf.distribute.Strategy:
    """Returns the strategy over all workers of TF_CONFIG, of which there are several.

    Args:
        logical_devices: Of each process, without GPUs; None is those that are configured.
        communication: "ring", "nccl", or "auto": ring on CPUs, TensorFlow's choice on GPUs.
        start_timeout_seconds: See `connect_workers`.
        worker_timeout_seconds: See `connect_workers`.

    Raises:
        Disagreement: Workers have other versions, devices or ways to communicate.
        WorkerLost: Not all workers came.
        ValueError: TensorFlow was used in this process before, or nccl without GPUs.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if communication == "nccl" and not gpus:
        raise ValueError(
            "trainer.communication='nccl' is between GPUs, and TensorFlow sees none here: use "
            "'ring' or 'auto'."
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
        if key not in _made:
            _made[key] = _strategy(devices, _implementation(communication, on_gpus=bool(gpus)))
            workers.on_worker_lost(_abort_collectives)
    strategy = _made[key]
    logging.info(
        "Worker %d of %d, with %d of %d replicas",
        workers.number,
        workers.size,
        len(strategy.extended.worker_devices),
        strategy.num_replicas_in_sync,
    )
    return strategy


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether replicas of the strategy are in other processes than this one."""
    return isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    ) and strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def worker_group(strategy: tf.distribute.Strategy) -> WorkerGroup:
    """Returns the workers that a strategy is over: `SINGLE_PROCESS` for one.

    Raises:
        ValueError: There are several, and they do not know each other as ours do.
    """
    if not is_multi_worker(strategy):
        return SINGLE_PROCESS
    if current_workers().size == 1:
        raise ValueError(
            "the strategy has several workers and was not made by create_strategy, which lets them "
            "agree on what is not a collective (who writes, when to stop): use "
            'trainer_module.create_strategy("multi_worker").'
        )
    return current_workers()


def _strategy(devices: int | None, implementation: Any) -> tf.distribute.Strategy:
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with _cpu_devices(devices or 1):
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise ValueError(
            f"trainer.strategy='multi_worker' has to come before anything else uses TensorFlow in "
            f"this process ({error}): call create_strategy first, or run the training in a process "
            "of its own."
        ) from error


def _implementation(communication: Communication, *, on_gpus: bool) -> Any:
    if communication == "auto":
        return _IMPLEMENTATION.AUTO if on_gpus else _IMPLEMENTATION.RING
    return _IMPLEMENTATION.NCCL if communication == "nccl" else _IMPLEMENTATION.RING


def _configured_devices() -> int:
    physical = tf.config.list_physical_devices("CPU")[0]
    return len(tf.config.get_logical_device_configuration(physical) or [None])


@contextlib.contextmanager
def _cpu_devices(count: int) -> Iterator[None]:
    """Lets the strategy take `count` logical CPU devices: by itself it takes one in each process.

    It counts GPUs alone, in a method of its own, whose collectives work with any devices.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    own = getattr(extended, "_initialize_local_devices", None)
    if count == 1:
        yield
        return
    if own is None:
        raise ValueError(
            f"trainer.logical_devices={count}: TensorFlow {tf.__version__} takes one CPU device in "
            "each worker; leave it out."
        )

    def several(self: Any, cluster_resolver: Any, worker_device: str) -> Any:
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

    extended._initialize_local_devices = several
    try:
        yield
    finally:
        extended._initialize_local_devices = own


def _abort_collectives(words: str) -> None:
    """Frees a main thread that waits in a collective for a worker that will not come."""
    eager_context.context().abort_collective_ops(tf.errors.UNAVAILABLE, words)
