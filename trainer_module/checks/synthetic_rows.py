"""Create synthetic rows and random weights, to check how a model processes rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.tensors import Tensors, Variable

ROWS = 4
_UNKNOWN_AXIS = 8


def synthetic_rows(specs: Tensors) -> tuple[Tensors, Tensors]:
    """Return rows a, b, c, d and rows a, b, e, f for a structure of specs `[rows, ...]`.

    Every value of e differs from c, and every value of f from d. Floats are between 0 and 1, and
    those of e and f are outside the range of all others. Integers are 0 or 1. Text is one digit,
    which layers can look up, hash or parse.

    Args:
        specs: Tensors or specs of which only shapes and dtypes count, or None. Axes of unknown
            length get length 8.

    Returns:
        Two structures of tensors `[4, ...]`.
    """
    random = np.random.default_rng(0)

    def six_rows(tensor: tf.TensorSpec | None) -> tf.Tensor | None:
        if tensor is None:
            return None
        shape = [ROWS, *(axis or _UNKNOWN_AXIS for axis in tensor.shape[1:])]
        if tensor.dtype.is_floating:
            rows = random.uniform(0.25, 0.75, shape)
            other = [random.uniform(low, low + 0.15, shape[1:]) for low in (0.05, 0.8)]
        elif tensor.dtype == tf.bool:
            rows = random.integers(0, 2, shape).astype(bool)
            other = ~rows[2:]
        else:
            # Text changes by 3, so that it differs from the text of all other rows.
            rows = random.integers(0, 2, shape)
            other = rows[2:] + 3 if tensor.dtype == tf.string else 1 - rows[2:]
        every = np.concatenate([rows, np.stack([*other])])
        if tensor.dtype == tf.string:
            return tf.constant(every.astype(str))
        return tf.cast(every, tensor.dtype)

    every = tf.nest.map_structure(six_rows, specs)
    return rows_of(every, [0, 1, 2, 3]), rows_of(every, [0, 1, 4, 5])


def rows_of(structure: Tensors, rows: Sequence[int]) -> Tensors:
    """Return the given rows of each tensor and of its Keras mask; None stays None."""

    def cut(tensor: tf.Tensor | None) -> tf.Tensor | None:
        if tensor is None:
            return None
        mask = getattr(tensor, "_keras_mask", None)
        part = tf.gather(tensor, rows)
        if mask is not None:
            part._keras_mask = tf.gather(mask, rows)
        return part

    return tf.nest.map_structure(cut, structure)


def random_weights(model: keras.Model) -> list[tuple[Variable, tf.Tensor]]:
    """Return (variable, random value) pairs of the trainable variables.

    The values make the output depend on every layer. Matrices get normal values whose standard
    deviation is 1 / sqrt(fan-in), at least 0.02. Vectors and scalars, which may be scales around 1,
    get normal noise with a standard deviation of 0.5 added.
    """
    random = np.random.default_rng(1)

    def value(variable: Variable) -> tf.Tensor:
        shape = tuple(variable.shape)
        if len(shape) > 1:
            fan_in = math.prod(shape[:-1])
            drawn = random.standard_normal(shape, "float32") * max(fan_in**-0.5, 0.02)
        else:
            drawn = np.asarray(variable, "float32") + random.normal(0, 0.5, shape)
        return tf.cast(drawn, variable.dtype)

    return [(v, value(v)) for v in model.trainable_variables]
