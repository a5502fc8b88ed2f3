"""Trace one function per shape of a batch's rows, up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import tensorflow as tf
from absl import logging

from trainer_module.common.optional_leaves import present_leaves, with_leaves
from trainer_module.common.tensors import Tensors

# A trace takes seconds and keeps its graph in memory. Sequences padded to a few lengths get one
# trace per length, which is a little faster; sequences of many lengths share one trace.
MOST_SHAPES = 8

# The axes of each tensor after the rows; None for an axis whose size differs between batches.
RowShapes: TypeAlias = tuple[tuple[int | None, ...], ...]


class StepFunctions:
    """One `tf.function` for each of the first shapes of a row, and a shared one for all others.

    A different number of rows does not cause another trace.
    """

    def __init__(self, window: Callable[[Tensors], Tensors]) -> None:
        """Create an object without traces.

        Args:
            window: Function of a batch, a structure of tensors `[rows, ...]` or None.
        """
        self._window = window
        self._functions: dict[Hashable, Callable[..., Tensors]] = {}
        self._shapes: dict[Hashable, list[RowShapes]] = {}

    def __call__(self, batch: Tensors) -> Tensors:
        """Run the function for the batch's shapes, and trace it first if needed."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in present_leaves(batch)]
        # None is a leaf of tf.nest, so the structure also shows that there is no weight.
        structure = with_leaves(batch, [True] * len(tensors))
        kind = (str(structure), tuple((t.dtype, t.shape.rank) for t in tensors))
        shapes = self._shapes.setdefault(kind, [])
        shape = tuple(tuple(t.shape[1:]) for t in tensors)
        if shape not in shapes and len(shapes) <= MOST_SHAPES:
            shapes.append(shape)
            if len(shapes) > MOST_SHAPES:
                _warn(shapes)
        if shape not in shapes[:MOST_SHAPES]:
            shape = _common([shape, *shapes])
            # The previous shared shapes are special cases of this one and are no longer needed.
            shapes[MOST_SHAPES:] = [shape]
        key = (kind, shape)
        if key not in self._functions:
            self._functions[key] = self._traced(structure, tensors, shape)
        return self._functions[key](*tensors)

    def _traced(
        self, structure: Tensors, tensors: list[tf.Tensor], shape: RowShapes
    ) -> Callable[..., Tensors]:
        def window(*tensors: tf.Tensor) -> Tensors:
            return self._window(with_leaves(structure, tensors))

        specs = [
            tf.TensorSpec([None, *axes], t.dtype) for axes, t in zip(shape, tensors, strict=True)
        ]
        return tf.function(window, specs, autograph=False)


def _common(shapes: list[RowShapes]) -> RowShapes:
    """Return the common shape: None for an axis whose size differs."""
    return tuple(
        tuple(axis[0] if len(set(axis)) == 1 else None for axis in zip(*axes, strict=True))
        for axes in zip(*shapes, strict=True)
    )


def _warn(shapes: list[RowShapes]) -> None:
    shown = "; ".join(", ".join(map(str, shape)) for shape in shapes)
    logging.warning(
        "The rows of batches have had %d shapes (features, labels, weights): %s. Each has its "
        "own trace, which takes time and memory. All further shapes share one trace, which is a "
        "little slower. Pad the rows to a few lengths, or to one.",
        len(shapes),
        shown,
    )
