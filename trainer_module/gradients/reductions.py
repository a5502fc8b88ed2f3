"""Fold the gradient of each row, so that nothing of size rows times parameters exists."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from trainer_module.gradients.arguments import (
    check_function,
    check_positive_number,
    to_direction,
)
from trainer_module.window.micro_batch import upcast_to_float32


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """What `per_example_gradients` keeps of each row's gradient g_i = w_i ∇l_i.

    Attributes:
        per_row: Function of one row's gradients (a list in the order of the model's trainable
            variables) that returns a tensor, or a list of tensors.
        over_rows: "none" returns a result for each row. "sum" and "mean" return one for all rows,
            of all replicas if called inside `strategy.run`.
    """

    per_row: Callable[[list[tf.Tensor]], Any]
    over_rows: Literal["none", "sum", "mean"] = "none"

    def __post_init__(self) -> None:
        if self.per_row is None:
            raise ValueError("per_row=None: use a function of one row's gradients.")
        check_function("per_row", self.per_row, example="tf.linalg.global_norm")
        if not isinstance(self.over_rows, str) or self.over_rows not in ("none", "sum", "mean"):
            raise ValueError(f'over_rows={self.over_rows!r}: use "none", "sum" or "mean".')

    @classmethod
    def norm(cls) -> GradientReduction:
        """Return the reduction to ‖g_i‖, `[rows]`."""
        return cls(global_norm)

    @classmethod
    def dot_product(cls, direction: Sequence[Any]) -> GradientReduction:
        """Return the reduction to g_i · d, `[rows]`.

        Args:
            direction: d, one tensor per trainable variable, of its shape.
        """

        def dot(gradients: list[tf.Tensor]) -> tf.Tensor:
            return dot_product(gradients, to_direction(direction, gradients, name="direction"))

        return cls(dot)

    @classmethod
    def clipped_sum(cls, clip_norm: float) -> GradientReduction:
        """Return the reduction to Σ_i g_i · min(1, clip_norm / ‖g_i‖), one tensor per variable.

        Raises:
            ValueError: clip_norm is not a finite number above 0.
        """
        check_positive_number("clip_norm", clip_norm, example="1.0")

        def clip(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
            factor = clip_factors(global_norm(gradients), clip_norm)
            return [g * tf.cast(factor, g.dtype) for g in gradients]

        return cls(clip, "sum")

    @classmethod
    def second_moment(cls) -> GradientReduction:
        """Return the reduction to the mean of g_i² over the rows, one tensor per variable."""
        return cls(lambda gradients: [tf.square(g) for g in gradients], "mean")


def global_norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the Euclidean norm of all elements, a scalar of at least 32 bits."""
    return tf.sqrt(dot_product(tensors, tensors))


def dot_product(first: Sequence[Any], second: Sequence[Any]) -> tf.Tensor:
    """Return the sum of the products of all elements, a scalar of at least 32 bits."""
    products = []
    for a, b in zip(first, second, strict=True):
        a = upcast_to_float32(a)
        products.append(tf.reduce_sum(a * tf.cast(b, a.dtype)))
    wide = any(product.dtype == tf.float64 for product in products)
    return tf.add_n([tf.cast(p, tf.float64 if wide else tf.float32) for p in products])


def clip_factors(norms: tf.Tensor, clip_norm: float) -> tf.Tensor:
    """Return min(1, clip_norm / norm) of each norm, which is 1 where the norm is 0."""
    range_of = np.finfo(norms.dtype.as_numpy_dtype)
    # Out of the range of float32, it would be 0 or infinite, and the quotient NaN.
    limit = tf.constant(min(max(clip_norm, float(range_of.tiny)), float(range_of.max)), norms.dtype)
    return limit / tf.maximum(norms, limit)
