"""Take several windows in one loop of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from trainer_module.common.tensors import Tensors
from trainer_module.step.reports import StepReport
from trainer_module.step.split import Share, unpack_batch
from trainer_module.window.phases import phase_scope
from trainer_module.window.spec import Batch


class LoopTotals(NamedTuple):
    """Totals of the windows of a run: the tensors of `LoopReport`, and its loss as a quotient.

    Attributes:
        steps: Number of windows, without a failed one, int64 scalar.
        loss: Σ over applied windows of Σ w_i times the loss, float64 scalar.
        weights: Σ over applied windows of Σ w_i, float64 scalar.
        rows: Number of rows, int64 scalar.
        loss_sums: `loss` and `weights` added to those of earlier runs, float64 `[2]`.
        reading_seconds: Wall time from each request for a batch until the batch was there, float64
            scalar. The update of the window before may run in it.
    """

    steps: tf.Tensor
    loss: tf.Tensor
    weights: tf.Tensor
    rows: tf.Tensor
    loss_sums: tf.Tensor
    reading_seconds: tf.Tensor


def take_windows(
    window: Callable[[Batch | Share], StepReport],
    first: tf.experimental.Optional,
    iterator: tf.data.Iterator,
    num_steps: tf.Tensor,
    loss_sums: tf.Tensor,
    empty: StepReport,
    *,
    on_read: Callable[[], None],
) -> tuple[StepReport, LoopTotals, tf.Tensor]:
    """Run a window for each element of an iterator, until one fails or there are `num_steps`.

    Args:
        window: Takes one window and updates the variables.
        first: The first element, if the caller has read it.
        iterator: Global batches, or shares of them.
        num_steps: Largest number of windows, int64 scalar.
        loss_sums: See `LoopTotals`, of earlier runs.
        empty: The report if there is no window; its shapes are those of all reports.
        on_read: Called in the graph before each read.

    Returns:
        The report of the last window, the totals, and whether the iterator ended first, scalar
        bool.
    """
    zero, count = tf.zeros([], tf.float64), tf.zeros([], tf.int64)

    def read() -> tuple[tf.experimental.Optional, tf.Tensor]:
        with tf.device("CPU:0"):  # the time of a read on the host needs nothing from a GPU
            on_read()
            asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            element = iterator.get_next_as_optional()
        with tf.device("CPU:0"), tf.control_dependencies(tf.nest.flatten(element, True)):
            return element, tf.timestamp() - asked

    def next_if(wanted: tf.Tensor) -> tuple[tf.experimental.Optional, tf.Tensor]:
        return tf.cond(
            wanted,
            read,
            lambda: (
                tf.experimental.Optional.empty(iterator.element_spec),
                tf.zeros([], tf.float64),
            ),
        )

    def body(
        element: tf.experimental.Optional, totals: LoopTotals, last: StepReport
    ) -> tuple[tf.experimental.Optional, LoopTotals, StepReport]:
        report = window(unpack_share(element.get_value()))
        totals = _add(totals, report)
        # The element is a loop variable. A condition inside the loop would need one operation for
        # each variable that it passes through.
        more = tf.logical_and(tf.logical_not(report.failed), totals.steps < num_steps)
        element, seconds = next_if(more)
        with tf.device("CPU:0"):
            seconds += totals.reading_seconds
        return element, totals._replace(reading_seconds=seconds), report

    with phase_scope("other"):
        element, seconds = tf.cond(
            first.has_value(), lambda: (first, zero), lambda: next_if(count < num_steps)
        )
        totals = LoopTotals(count, zero, zero, count, loss_sums, seconds)
        _, totals, last = tf.while_loop(
            lambda element, *_: element.has_value(),
            body,
            (element, totals, empty),
            parallel_iterations=1,
        )
    exhausted = tf.logical_and(totals.steps < num_steps, tf.logical_not(last.failed))
    return last, totals, exhausted


def _add(totals: LoopTotals, report: StepReport) -> LoopTotals:
    zero = tf.zeros([], tf.float64)
    took = tf.logical_not(report.failed)
    good = tf.logical_and(took, report.applied)
    weight = tf.where(good, tf.cast(report.weight_sum, tf.float64), zero)
    term = tf.where(good, tf.cast(report.loss, tf.float64), zero) * weight
    read = tf.where(took, tf.cast(report.rows, tf.int64), tf.zeros([], tf.int64))
    return LoopTotals(
        steps=totals.steps + tf.cast(took, tf.int64),
        loss=totals.loss + term,
        weights=totals.weights + weight,
        rows=totals.rows + read,
        loss_sums=totals.loss_sums + tf.stack([term, weight]),
        reading_seconds=totals.reading_seconds,
    )


def unpack_share(element: Tensors) -> Batch | Share:
    """Return an element of a dataset as a batch or a share of one."""
    if isinstance(element, Share):
        return Share(unpack_batch(element.batch), element.rows)
    return unpack_batch(element)
