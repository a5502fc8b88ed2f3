"""Scalers that learn nothing, and chains that begin with one of these functions.

    none    x itself, clipped and imputed
    log1p   sign(x) log(1 + |x|): log(1 + x) for x >= 0, odd, finite for all x
    asinh   log(x + sqrt(1 + x²)): like x near 0, like log(2 |x|) far from it; odd

    scale: [log1p, z_score]   the z-score of the logarithm: all that is learned is of f(x)

Both grow with x: bounds, ranks and medians of f(x) are f of those of x. The function of a chain is
applied before anything is learned (steps/numbers.py): what is left is the scaler.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from transform.block import Explanation
from transform.scale.scaler import Pointwise, ScaledGroup, Scaler, ValidationRule

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted import FittedColumn


class _Function(NamedTuple):
    """A function, of tensors and of a number, and its inverse.

    Attributes:
        apply: of float64 tensors; NaN stays NaN.
        value: of one float64.
        inverse: of one float64.
    """

    apply: Callable[[tf.Tensor], tf.Tensor]
    value: Callable[[float], float]
    inverse: Callable[[float], float]


def _log1p(x: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.sign(x) * tf.math.log1p(tf.abs(x))


def _asinh(x: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    # Far from 0, x² would overflow: log(2 |x|), which is as exact from 2^28 on.
    size = tf.abs(x)
    near = tf.minimum(size, 2.0**28)
    far = tf.math.log(tf.maximum(size, 1.0)) + math.log(2.0)
    return tf.sign(x) * tf.where(size > 2.0**28, far, tf.asinh(near))


def _odd(function: np.ufunc) -> Callable[[float], float]:
    return lambda x: float(np.copysign(function(abs(x)), x))


FUNCTIONS: Mapping[Pointwise, _Function] = {
    "log1p": _Function(_log1p, _odd(np.log1p), _odd(np.expm1)),
    "asinh": _Function(_asinh, _odd(np.arcsinh), _odd(np.sinh)),
}


def _scaler(name: Pointwise) -> Scaler:
    return Scaler(
        name=name,
        apply=lambda columns: FUNCTIONS[name].apply(columns.x),
        validation_rule=ValidationRule("pointwise"),
    )


SCALERS = (
    _scaler("log1p"),
    _scaler("asinh"),
    Scaler(name="none", apply=lambda columns: columns.x),
)


def chain_kind(first: str, last: str) -> str:
    """Return `Column.kind` of a chain's columns."""
    return f"{first}+{last}"


def chained(first: Pointwise, scaler: Scaler) -> Scaler:
    """Return the scaler of a function's values; its numbers are of these."""

    def explain(group: ScaledGroup, fitted: FittedColumn) -> Explanation:
        return {"of": first, **scaler.explain(group, fitted)}

    name = chain_kind(first, scaler.name)
    return dataclasses.replace(scaler, name=name, explain=explain, first=first)
