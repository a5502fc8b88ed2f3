"""Functions of a number alone: scalers alone, and what stands first in a chain.

    log1p   sign(x) log(1 + |x|): log(1 + x) for x >= 0, odd, finite for all x
    asinh   log(x + sqrt(1 + x²)): like x near 0, like log(2 |x|) far from it; odd

    scale: [log1p, z_score]   the z-score of the logarithm: all that is learned is of f(x)

Both grow with x: bounds, ranks and medians of f(x) are f of those of x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf

Pointwise = Literal["log1p", "asinh"]


class Function(NamedTuple):
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


def _log1p_of(x: float) -> float:
    import numpy as np

    return float(np.copysign(np.log1p(abs(x)), x))


def _of_log1p(y: float) -> float:
    import numpy as np

    return float(np.copysign(np.expm1(abs(y)), y))


def _asinh_of(x: float) -> float:
    import numpy as np

    return float(np.arcsinh(x))


def _of_asinh(y: float) -> float:
    import numpy as np

    return float(np.sinh(y))


FUNCTIONS: Mapping[Pointwise, Function] = {
    "log1p": Function(_log1p, _log1p_of, _of_log1p),
    "asinh": Function(_asinh, _asinh_of, _of_asinh),
}
