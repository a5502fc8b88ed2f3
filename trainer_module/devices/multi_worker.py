"""One strategy over several processes, and where their graph is while it runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from importlib.metadata import version

import keras
import tensorflow as tf
from absl import logging
from tensorflow.python.distribute import collective_all_reduce_strategy
from tensorflow.python.eager import context as eager_context

from trainer_module.common.tensors import Tensors
from trainer_module.devices.main_thread import Activity, doing
from trainer_module.devices.replicas import is_multi_worker, local_replicas
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
            workers.on_worker_lost(_abort_collectives)
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


def _abort_collectives(message: str) -> None:
    """Release a main thread that waits in a collective for a lost worker.

    TensorFlow has no public function for it, and a collective has no timeout.
    """
    eager_context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)


_numbers = itertools.count()


class GraphMarks:
    """Marks in a graph that runs on several workers; in a single process there are none.

    One number has the batches that were read, times `_size`, plus the place in the batch: 0 while
    it is computed, plus 1 for each of the replicas that has its part of a sum over all workers,
    and `replicas + 1` while the next one is read.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Create the variable, which is of no strategy: that would put a copy on each device."""
        self._replicas = local_replicas(strategy)
        self._size = 2 * (self._replicas + 1)
        self._handle: tf.Tensor | None = None
        if worker_group(strategy).size > 1:
            with tf.init_scope(), tf.device("CPU:0"):
                self._handle = tf.raw_ops.VarHandleOp(
                    dtype=tf.int64, shape=[], shared_name=f"graph_marks_{next(_numbers)}"
                )
                tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.zeros([], tf.int64))

    def watched(
        self, part: str, *, first: Callable[[], int] = lambda: 1
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context for a call of the graph."""
        if self._handle is None:
            return contextlib.nullcontext()
        start, number = int(self._read()), first()

        def read() -> Activity:
            mark = int(self._read())
            batches, place = divmod(mark, self._size)
            now = number + batches - start // self._size - 1
            if mark == start:
                return Activity(f"tracing {part} {number}", limit="long")
            if place % (self._replicas + 1) == self._replicas:
                return Activity(f"waiting in the sum of {part} {now}", mark, waits=True)
            # The first read fills buffers or finds its place again, the first batch compiles.
            if place > self._replicas:
                limit = "long" if batches == 0 else "short"
                return Activity(f"reading the rows of {part} {now + 1}", mark, limit=limit)
            limit = "long" if batches == 1 else "short"
            return Activity(f"computing {part} {now}", mark, limit=limit)

        return doing(read)

    def reading(self) -> None:
        """Mark that the next batch is read."""
        self._add((), lambda mark: self._replicas + 1 - mark % self._size)

    def computing(self, batch: Tensors) -> None:
        """Mark that the batch has been read."""
        self._add(batch, lambda mark: self._size - mark % self._size)

    def summing(self, after: Tensors, *, replicas: int = 1) -> None:
        """Mark that so many replicas have their parts of a sum over all workers: `after`."""
        self._add(after, lambda _: tf.constant(replicas, tf.int64))

    def _add(self, after: Tensors, amount: Callable[[tf.Tensor], tf.Tensor]) -> None:
        if self._handle is None:
            return
        tensors = filter(tf.is_tensor, tf.nest.flatten(after, expand_composites=True))
        with tf.device("CPU:0"), tf.control_dependencies(list(tensors)):
            tf.raw_ops.AssignAddVariableOp(resource=self._handle, value=amount(self._read()))

    def _read(self) -> tf.Tensor:
        with tf.device("CPU:0"):
            return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)
