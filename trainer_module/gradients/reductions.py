"""Fold the gradient of each row, so that nothing of size rows times parameters exists."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Literal

import tensorflow as tf

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
            check_direction(direction, gradients, name="direction")
            return dot_product(gradients, direction)

        return cls(dot)

    @classmethod
    def clipped_sum(cls, clip_norm: float) -> GradientReduction:
        """Return the reduction to Σ_i g_i · min(1, clip_norm / ‖g_i‖), one tensor per variable.

        Raises:
            ValueError: clip_norm is not a finite number above 0.
        """
        check_clip_norm(clip_norm)

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
    limit = tf.constant(clip_norm, norms.dtype)
    return limit / tf.maximum(norms, limit)


def check_clip_norm(clip_norm: Any) -> None:
    """Raise ValueError unless clip_norm is a finite number above 0."""
    is_number = isinstance(clip_norm, numbers.Real) and not isinstance(clip_norm, bool)
    if not is_number or not 0 < float(clip_norm) < math.inf:
        raise ValueError(f"clip_norm={clip_norm!r}: use a finite number above 0, such as 1.0.")


def check_direction(direction: Sequence[Any], variables: Sequence[Any], *, name: str) -> None:
    """Raise ValueError unless there is one tensor of the shape of each variable."""
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in direction]
    wanted = [tuple(variable.shape) for variable in variables]
    if shapes != wanted:
        raise ValueError(
            f"{name} has tensors of shapes {shapes}, the trainable variables have {wanted}: give "
            "one tensor for each variable, in the order of model.trainable_variables."
        )
