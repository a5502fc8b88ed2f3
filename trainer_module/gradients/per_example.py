"""Compute the gradient of each row separately, to find the rows with the largest influence.

Reductions fold each of them, so that nothing of size rows times parameters exists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.arguments import (
    check_function,
    check_positive_number,
    checked_batch,
    to_direction,
)
from trainer_module.gradients.row_gradients import (
    ChunkSize,
    map_chunks,
    number_rows,
    row_gradients,
    sum_chunks,
    sum_tensors_over_replicas,
)
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.micro_batch import upcast_to_float32
from trainer_module.window.spec import WindowSpec


@naming_replacements()
@translate_tf_errors()
def per_example_gradients(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    chunk_size: ChunkSize = "auto",
    reduce: GradientReduction | Callable[[list[tf.Tensor]], Any] | None = None,
    random_position: Sequence[Any] = (),
) -> Any:
    """Return w_i ∇l_i for each row i, with the gradients of `chunk_size` rows in memory at a time.

    With several outputs, the result is the sum of their gradients. The result for all rows is
    `rows` times the size of the model; use `reduce` to keep less per row. Regularisers are not
    included, because they do not belong to a row.

    Layers run in training mode. Each row has separate random numbers, such as dropout masks. They
    are a function of the model's seeds, `random_position`, the replica and the row's number, and
    do not depend on `chunk_size`. Rows of a chunk run in parallel with `tf.vectorized_map`, except
    in models with loops of unknown length, which run row by row.

    Example:
        norms = per_example_gradients(model, "mse", x, y, reduce=GradientReduction.norm())

    Args:
        model: A built Keras model.
        loss_fn: See `TrainStep`.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]` or None.
        chunk_size: Number of rows at a time, or "auto": as many as hold 128 MiB, on a GPU 256 MiB.
        reduce: A `GradientReduction`, or a function of one row's gradients (a list in the order of
            the model's trainable variables) that returns one tensor.
        random_position: Integers that identify the batch, such as the step number. Other integers
            give other dropout masks.

    Returns:
        `[rows, *variable.shape]` per trainable variable, zeros if the loss does not depend on it.
        With a function as `reduce`, one tensor `[rows, ...]` of its results. With a
        `GradientReduction`, the result that it describes.

    Raises:
        ValueError: chunk_size is below 1, tensors differ in their number of rows or do not fit the
            model, a layer updates state when called, such as BatchNormalization that is not frozen,
            or the model overrides `compute_loss`. A model that overrides `train_step` is accepted,
            because its `train_step` may call this function.
    """
    if not isinstance(reduce, GradientReduction):
        check_function("reduce", reduce, example="GradientReduction.norm()")
    batch = checked_batch(
        model,
        loss_fn,
        features,
        labels,
        sample_weight,
        by="per_example_gradients",
        random_position=random_position,
    )
    spec = WindowSpec(model, as_loss_function(loss_fn))
    if reduce is None or isinstance(reduce, GradientReduction):
        reduction = reduce
    else:
        reduction = GradientReduction(reduce)
    is_list = [reduction is None]  # whether the caller gets a list

    def fold(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        found = gradients if reduction is None else reduction.per_row(gradients)
        is_list[0] = isinstance(found, (list, tuple))
        return list(found) if is_list[0] else [found]

    rows = row_gradients(
        spec, batch, chunk_size=chunk_size, fold=fold, random_position=random_position
    )
    data = number_rows(batch)
    if reduction is None or reduction.over_rows == "none":
        found = map_chunks(rows.of_chunk, data, rows.specs, chunk_size=rows.chunk_size)
        return found if is_list[0] else found[0]

    def sums_of_chunk(part: Any) -> list[tf.Tensor]:
        return [tf.reduce_sum(upcast_to_float32(tensor), 0) for tensor in rows.of_chunk(part)]

    # In bfloat16, 256 + 1 is 256.
    specs = [(tf.float32 if d in (tf.bfloat16, tf.float16) else d, s) for d, s in rows.specs]
    found = sum_chunks(sums_of_chunk, data, specs, chunk_size=rows.chunk_size)
    # A replica's int32 tensors are on the host, where they cannot be reduced with the others.
    count = tf.cast(tf.shape(data[1])[0], tf.float64)
    *found, count = sum_tensors_over_replicas([*found, count])
    if reduction.over_rows == "mean":
        found = [total / tf.cast(tf.maximum(count, 1), total.dtype) for total in found]
    return found if is_list[0] else found[0]


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
        return cls(_global_norm)

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
            factor = clip_factors(_global_norm(gradients), clip_norm)
            return [g * tf.cast(factor, g.dtype) for g in gradients]

        return cls(clip, "sum")

    @classmethod
    def second_moment(cls) -> GradientReduction:
        """Return the reduction to the mean of g_i² over the rows, one tensor per variable."""
        return cls(lambda gradients: [tf.square(g) for g in gradients], "mean")


def _global_norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
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
