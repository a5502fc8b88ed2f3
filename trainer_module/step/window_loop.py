"""Take several windows in one loop of the graph, with one function per shape of a batch's rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import tensorflow as tf

from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import Tensors, present_leaves, with_leaves
from trainer_module.devices.replicas import Share
from trainer_module.step.reports import StepReport
from trainer_module.window.spec import Batch, unpack_share
from trainer_module.window.trace import phase_scope


class LoopTotals(NamedTuple):
    """Totals of the windows of a run: the tensors of `LoopReport`, and its loss as a quotient.

    Attributes:
        steps: Number of windows, without a failed one, int64 scalar.
        loss: Σ over applied windows of Σ w_i times the loss, float64 scalar.
        weights: Σ over applied windows of Σ w_i, float64 scalar.
        rows: Number of rows, int64 scalar.
        loss_sums: `loss` and `weights` added to those of earlier runs, float64 `[2]`.
    """

    steps: tf.Tensor
    loss: tf.Tensor
    weights: tf.Tensor
    rows: tf.Tensor
    loss_sums: tf.Tensor


def take_windows(
    window: Callable[[Batch | Share], StepReport],
    empty: Callable[[], StepReport],
    first: tf.experimental.Optional,
    iterator: tf.data.Iterator,
    num_steps: tf.Tensor,
    loss_sums: tf.Tensor,
) -> tuple[StepReport, LoopTotals, tf.Tensor]:
    """Run a window for each element of an iterator, until one fails or there are `num_steps`.

    `empty` returns the report of no window.
    """
    zero, count = tf.zeros([], tf.float64), tf.zeros([], tf.int64)

    def next_if(wanted: tf.Tensor) -> tf.experimental.Optional:
        return tf.cond(
            wanted,
            iterator.get_next_as_optional,
            lambda: tf.experimental.Optional.empty(iterator.element_spec),
        )

    def body(
        element: tf.experimental.Optional, totals: LoopTotals, last: StepReport
    ) -> tuple[tf.experimental.Optional, LoopTotals, StepReport]:
        report = window(unpack_share(element.get_value()))
        totals = _add(totals, report)
        # The element is a loop variable. A condition inside the loop would need one operation for
        # each variable that it passes through.
        more = tf.logical_and(tf.logical_not(report.failed), totals.steps < num_steps)
        return next_if(more), totals, report

    with phase_scope("other"):
        element = tf.cond(first.has_value(), lambda: first, lambda: next_if(count < num_steps))
        totals = LoopTotals(count, zero, zero, count, loss_sums)
        _, totals, last = tf.while_loop(
            lambda element, *_: element.has_value(),
            body,
            (element, totals, empty()),
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
    )


# A trace takes seconds and keeps its graph in memory. Sequences padded to a few lengths get one
# trace per length, which is a little faster; sequences of many lengths share one trace.
_MOST_SHAPES = 8


class StepFunctions:
    """One `tf.function` for each of the first shapes of a row, and a shared one for all others.

    A different number of rows does not cause another trace.
    """

    def __init__(self, window: Callable[[Tensors], Tensors]) -> None:
        """Create an object without traces."""
        self._window = window
        self._functions: dict[Hashable, Callable[..., Tensors]] = {}

    def __call__(self, batch: Tensors) -> Tensors:
        """Run the function for the batch's shapes, and trace it first if needed."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in present_leaves(batch)]
        # None is a leaf of tf.nest, so the structure also shows that there is no weight.
        structure = with_leaves(batch, [True] * len(tensors))
        specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in tensors]
        key = (str(structure), tuple(specs))
        if key not in self._functions and len(self._functions) >= _MOST_SHAPES:
            warn_once(
                f"The rows of batches have had {_MOST_SHAPES + 1} shapes (features, labels, "
                f"weights), now {', '.join(str(tuple(t.shape[1:])) for t in tensors)}. Each of the "
                f"first {_MOST_SHAPES} has its own trace, which takes time and memory. All further "
                "shapes share one, which is a little slower. Pad the rows to a few lengths.",
                about=self,
                topic="shapes",
            )
            # TensorFlow makes an axis whose size differs one of any size.
            key, specs = str(structure), None
        if key not in self._functions:

            def window(*tensors: tf.Tensor) -> Tensors:
                return self._window(with_leaves(structure, tensors))

            self._functions[key] = tf.function(
                window, specs, autograph=False, reduce_retracing=specs is None
            )
        return self._functions[key](*tensors)
