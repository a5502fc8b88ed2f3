"""Labels as a loss takes them: shaped like the outputs, and harmless where they do not count."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def align(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns both, labels with the outputs' rank: [batch] against [batch, 1] would broadcast.

    Args:
        labels: `[batch]`, `[batch, ...]`.
        outputs: `[batch, ...]`.

    Raises:
        ValueError: A rank is unknown, so that nobody can say what would broadcast.
    """
    ranks = labels.shape.rank, outputs.shape.rank
    if ranks[0] is None or ranks[1] is None:
        raise ValueError(
            f"labels of shape {labels.shape} and outputs of shape {outputs.shape}: a rank is "
            "unknown. Say it in the input pipeline, such as tf.ensure_shape(labels, [None, 1])."
        )
    if ranks[0] == ranks[1] - 1 and outputs.shape[-1] == 1:
        labels = labels[..., tf.newaxis]
    elif ranks[0] == ranks[1] + 1 and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    return labels, outputs


def same_shape(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns both for a loss that compares them value by value, over the last axis.

    Args:
        labels: Of the rank of `outputs`.
        outputs: `[batch, ...]`; `[batch]` becomes `[batch, 1]`.

    Raises:
        ValueError: The shapes differ, or labels are strings. Where a shape shows at run time only,
            InvalidArgumentError.
    """
    if labels.dtype == tf.string:
        raise ValueError(
            "labels are strings: give numbers, such as the ids that keras.layers.StringLookup "
            "gives classes in the input pipeline."
        )
    if not labels.shape[1:].is_compatible_with(outputs.shape[1:]):
        raise ValueError(
            f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}: the "
            "loss would broadcast one against the other. Check the last layer's units, or use "
            "sparse_categorical_crossentropy for integer classes."
        )
    if outputs.shape.rank == 1:
        return labels[:, tf.newaxis], outputs[:, tf.newaxis]
    if not (labels.shape[1:].is_fully_defined() and outputs.shape[1:].is_fully_defined()):
        labels = tf.reshape(labels, tf.shape(outputs))  # fails where it would have to broadcast
    return labels, outputs


def zero_where_unweighted(labels: Tensors, weights: Any, *, but: int | None = None) -> Any:
    """Returns labels with 0 wherever the weight is 0, or 1 where 0 is the label `but`.

    What stands for "unknown" there, NaN or a class of -1, would otherwise give a NaN gradient
    (0 · NaN) or an error.

    Args:
        labels: Numbers `[batch, ...]`; anything else passes.
        weights: `[batch]`, or one per value as far as its axes go, from the left; None passes.
        but: A label that is none, which a loss leaves out by a mask: rows that have it keep it, and
            no other row gets it.
    """
    if weights is None or tf.nest.is_nested(labels):
        return labels
    labels, weights = tf.convert_to_tensor(labels), tf.convert_to_tensor(weights)
    if labels.dtype == tf.string or labels.shape.rank is None or weights.shape.rank is None:
        return labels
    while weights.shape.rank > labels.shape.rank and weights.shape[-1] == 1:
        weights = tf.squeeze(weights, -1)
    if weights.shape.rank > labels.shape.rank:
        return labels
    while weights.shape.rank < labels.shape.rank:
        weights = weights[..., tf.newaxis]
    axes = zip(weights.shape, labels.shape, strict=True)
    if any(w not in (1, None, axis) for w, axis in axes):
        return labels  # they do not fit; the loss says so
    off = tf.equal(weights, tf.zeros_like(weights))
    if but is None:
        return tf.where(off, tf.zeros_like(labels), labels)
    off = tf.logical_and(off, tf.not_equal(labels, tf.cast(but, labels.dtype)))
    return tf.where(off, tf.cast(1 if but == 0 else 0, labels.dtype), labels)
