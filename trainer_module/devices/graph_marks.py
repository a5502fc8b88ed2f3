"""Let a graph mark where it is, so that another thread sees it while the graph runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.devices.main_thread import Activity
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.strategies import local_replicas

_READING, _COMPUTING = 1, 2
_numbers = itertools.count()


class GraphMarks:
    """Marks in a graph that runs on several workers; in a single process there are none.

    They are read by the thread that sends the heartbeats. The variable belongs to no strategy,
    which would put a copy on each device.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Create the variable: the batches read, the place, and the replicas that are summing."""
        self._workers = worker_group(strategy)
        self._replicas = local_replicas(strategy)
        self._handle: tf.Tensor | None = None
        if self._workers.size > 1:
            with tf.init_scope(), tf.device("CPU:0"):
                self._handle = tf.raw_ops.VarHandleOp(
                    dtype=tf.int64, shape=[3], shared_name=f"graph_marks_{next(_numbers)}"
                )
                self._assign([0, 0, 0])

    def watched(
        self, part: str, *, first: Callable[[], int] = lambda: 1
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context for a call of the graph.

        Args:
            part: Name of what is done with one batch, such as "step".
            first: Returns the number of the first one.
        """
        if self._handle is None:
            return contextlib.nullcontext()
        start, number = self._read(), first()

        def read() -> Activity:
            marks = self._read()
            if marks == start:
                return Activity(f"tracing {part} {number}", limit="long")
            batches, place, summing = marks
            done = number + batches - start[0]
            if summing == self._replicas:
                return Activity(f"waiting in the sum of {part} {done - 1}", marks, waits=True)
            if place == _READING:
                # The first read fills buffers, or finds the place in the data again.
                limit = "long" if batches == 0 else "short"
                return Activity(f"reading the rows of {part} {done}", marks, limit=limit)
            limit = "long" if batches == 1 else "short"  # the first one compiles
            return Activity(f"computing {part} {done - 1}", marks, limit=limit)

        return self._workers.doing("", read=read)

    def reading(self) -> None:
        """Mark that the next batch is read."""
        self._mark(batches=0, place=_READING)

    def computing(self, batch: Tensors) -> None:
        """Mark that the batch has been read."""
        self._mark(after=batch, batches=1, place=_COMPUTING)

    def summing(self, after: Tensors, *, replicas: int = 1) -> None:
        """Mark that so many replicas have their parts of a sum over all workers: `after`."""
        if self._handle is not None:
            with tf.device("CPU:0"), tf.control_dependencies(_tensors(after)):
                tf.raw_ops.AssignAddVariableOp(
                    resource=self._handle, value=tf.constant([0, 0, replicas], tf.int64)
                )

    def _mark(self, *, batches: int, place: int, after: Tensors = ()) -> None:
        if self._handle is not None:
            with tf.device("CPU:0"), tf.control_dependencies(_tensors(after)):
                now = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)
                self._assign(tf.stack([now[0] + batches, place, 0]))

    def _assign(self, value: Tensors) -> None:
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.cast(value, tf.int64))

    def _read(self) -> list[int]:
        with tf.device("CPU:0"):
            value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)
        return value.numpy().tolist()


def _tensors(structure: Tensors) -> list[tf.Tensor]:
    found = tf.nest.flatten(structure, expand_composites=True)
    return [tensor for tensor in found if tf.is_tensor(tensor)]
