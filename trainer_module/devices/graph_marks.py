"""Let a graph mark where it is, so that another thread sees it while the graph runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.main_thread import Activity, doing
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.replicas import local_replicas

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
