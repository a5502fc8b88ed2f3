"""Take several windows in one loop of the graph, with one function per shape of a batch's rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

import tensorflow as tf
from absl import logging

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

# The axes of each tensor after the rows; None for an axis whose size differs between batches.
_RowShapes: TypeAlias = tuple[tuple[int | None, ...], ...]


class StepFunctions:
    """One `tf.function` for each of the first shapes of a row, and a shared one for all others.

    A different number of rows does not cause another trace.
    """

    def __init__(self, window: Callable[[Tensors], Tensors]) -> None:
        """Create an object without traces."""
        self._window = window
        self._functions: dict[Hashable, Callable[..., Tensors]] = {}
        self._shapes: dict[Hashable, list[_RowShapes]] = {}

    def __call__(self, batch: Tensors) -> Tensors:
        """Run the function for the batch's shapes, and trace it first if needed."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in present_leaves(batch)]
        # None is a leaf of tf.nest, so the structure also shows that there is no weight.
        structure = with_leaves(batch, [True] * len(tensors))
        kind = (str(structure), tuple((t.dtype, t.shape.rank) for t in tensors))
        shapes = self._shapes.setdefault(kind, [])
        shape = tuple(tuple(t.shape[1:]) for t in tensors)
        if shape not in shapes and len(shapes) <= _MOST_SHAPES:
            shapes.append(shape)
            if len(shapes) > _MOST_SHAPES:
                _warn(shapes)
        if shape not in shapes[:_MOST_SHAPES]:
            # None for an axis whose size differs.
            shape = tuple(
                tuple(axis[0] if len(set(axis)) == 1 else None for axis in zip(*axes, strict=True))
                for axes in zip(shape, *shapes, strict=True)
            )
            # The previous shared shapes are special cases of this one and are no longer needed.
            shapes[_MOST_SHAPES:] = [shape]
        key = (kind, shape)
        if key not in self._functions:
            self._functions[key] = self._traced(structure, tensors, shape)
        return self._functions[key](*tensors)

    def _traced(
        self, structure: Tensors, tensors: list[tf.Tensor], shape: _RowShapes
    ) -> Callable[..., Tensors]:
        def window(*tensors: tf.Tensor) -> Tensors:
            return self._window(with_leaves(structure, tensors))

        specs = [
            tf.TensorSpec([None, *axes], t.dtype) for axes, t in zip(shape, tensors, strict=True)
        ]
        return tf.function(window, specs, autograph=False)


def _warn(shapes: list[_RowShapes]) -> None:
    shown = "; ".join(", ".join(map(str, shape)) for shape in shapes)
    logging.warning(
        "The rows of batches have had %d shapes (features, labels, weights): %s. Each has its "
        "own trace, which takes time and memory. All further shapes share one trace, which is a "
        "little slower. Pad the rows to a few lengths, or to one.",
        len(shapes),
        shown,
    )
