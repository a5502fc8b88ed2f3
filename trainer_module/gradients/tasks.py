"""Compute the gradient of each loss of a model with several outputs from one forward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from trainer_module.checks.model import check_built
from trainer_module.checks.tf_errors import translate_tf_errors
from trainer_module.common.positive_int import check_positive_int
from trainer_module.common.tensors import LossLike, Tensors
from trainer_module.gradients.arguments import check_random_position, checked_features
from trainer_module.losses.nested import path_name
from trainer_module.losses.weighted_loss import LossSums, WeightedLoss, weighted_loss
from trainer_module.window.accumulation import accumulate_gradients
from trainer_module.window.reduction import sum_over_replicas


class TaskGradients(NamedTuple):
    """The loss and the gradient of each task.

    Attributes:
        losses: Task -> Σ w_i l_i / Σ w_i, scalar.
        gradients: Task -> its gradient, one tensor per trainable variable, zeros if the loss does
            not depend on it.
        norms: Task -> the norm of its gradient over all variables, scalar.
        cosines: `[tasks, tasks]`, the cosine of the angle between each two gradients, in the order
            of `losses`; 0 where a gradient is 0. Below 0, the tasks conflict.
    """

    losses: dict[str, tf.Tensor]
    gradients: dict[str, list[tf.Tensor]]
    norms: dict[str, tf.Tensor]
    cosines: tf.Tensor


@translate_tf_errors()
def task_gradients(
    model: keras.Model,
    losses: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    micro_batch_size: int,
    random_position: Sequence[Any] = (),
) -> TaskGradients:
    """Return each loss's own gradient, its norm and the cosines, from one forward pass.

    Gradients are accumulated over micro-batches as in training, and each is divided by its own
    Σ w_i. Regularisers and losses that layers pass to `add_loss` belong to no task and are not
    included. Inside `strategy.run`, the results are those of the rows of all replicas.

    Args:
        model: A built Keras model with several outputs.
        losses: A dict or list of losses with the structure of the model's outputs, or
            `weighted_loss(...)` of one, whose factors then multiply the gradients.
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensors in the structure of the losses.
        sample_weight: `[rows]`, or weights in the structure of the losses, or None.
        micro_batch_size: Number of rows of one micro-batch; it bounds the memory.
        random_position: See `accumulate_gradients`.

    Raises:
        ValueError: There are fewer than two losses, or micro_batch_size is below 1. See also
            `accumulate_gradients`.
    """
    check_built(model)
    check_random_position(random_position)
    size = check_positive_int("micro_batch_size", micro_batch_size)
    whole = losses if isinstance(losses, WeightedLoss) else weighted_loss(losses)
    if len(whole.terms) < 2:
        raise ValueError(
            f"losses={losses!r} has {len(whole.terms)} loss: give one for each of at least two "
            'outputs, such as {"price": "mse", "sold": "binary_crossentropy"}.'
        )
    single = [dataclasses.replace(whole, terms=(term,)) for term in whole.terms]
    names = [path_name(term.path) for term in whole.terms]

    def of_each(labels: Tensors, outputs: Tensors, sample_weight: Tensors = None) -> LossSums:
        sums = [loss(labels, outputs, sample_weight) for loss in single]
        wide = any(s.numerator.dtype == tf.float64 for s in sums)
        dtype = tf.float64 if wide else tf.float32
        return LossSums(
            tf.stack([tf.cast(s.numerator, dtype) for s in sums]),
            tf.stack([tf.cast(s.denominator, dtype) for s in sums]),
        )

    context = tf.distribute.get_replica_context()
    replicas = 1 if context is None else context.num_replicas_in_sync
    position = random_position
    if context is not None and replicas > 1:
        position = (*random_position, context.replica_id_in_sync_group)
    total = accumulate_gradients(
        model,
        of_each,
        checked_features(model, features),
        labels,
        sample_weight,
        micro_batch_size=size,
        random_position=position,
    )
    if replicas > 1:
        total = sum_over_replicas(total)
    means = [
        tf.zeros([len(names), *v.shape], total.numerator.dtype)
        if g is None
        else tf.math.divide_no_nan(
            g, tf.reshape(tf.cast(total.denominator, g.dtype), [-1] + [1] * len(v.shape))
        )
        for v, g in zip(model.trainable_variables, total.gradients, strict=True)
    ]
    products = tf.add_n([_products(mean) for mean in means])
    norms = tf.sqrt(tf.linalg.diag_part(products))
    values = tf.math.divide_no_nan(total.numerator, total.denominator)
    return TaskGradients(
        losses=dict(zip(names, tf.unstack(values), strict=True)),
        gradients={name: [mean[i] for mean in means] for i, name in enumerate(names)},
        norms=dict(zip(names, tf.unstack(norms), strict=True)),
        cosines=tf.math.divide_no_nan(products, norms[:, tf.newaxis] * norms),
    )


def _products(mean: tf.Tensor) -> tf.Tensor:
    flat = tf.reshape(mean, [mean.shape[0], -1])
    return tf.matmul(flat, flat, transpose_b=True)
