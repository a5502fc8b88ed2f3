"""Runtime patches and private functions of tf.distribute, one function for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context as eager_context


@contextlib.contextmanager
def cpu_devices_per_worker(count: int) -> Iterator[None]:
    """Let a MultiWorkerMirroredStrategy that is created in the block use `count` CPU devices.

    TensorFlow gives each worker all of its GPUs, but only one logical CPU device. The method that
    lists the devices is private. The collectives work with any number and kind of devices.

    Raises:
        ValueError: This version of TensorFlow has no such method.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = getattr(extended, "_initialize_local_devices", None)
    if count == 1:
        yield
        return
    if original is None:
        raise ValueError(
            f"logical_devices={count}: TensorFlow {tf.__version__} takes one CPU device in each "
            "worker; leave it out."
        )

    def list_cpu_devices(
        self: object, cluster_resolver: object, worker_device: str
    ) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

    extended._initialize_local_devices = list_cpu_devices
    try:
        yield
    finally:
        extended._initialize_local_devices = original


def abort_collectives(message: str) -> None:
    """Release a main thread that waits in a collective for a lost worker.

    TensorFlow has no public function for it, and a collective has no timeout.
    """
    eager_context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)
