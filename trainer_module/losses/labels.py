"""Prepare labels for a loss: align their shape with the outputs, and mask unweighted labels."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def align(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return labels and outputs of the same rank, if labels only lack or have a last axis of 1.

    Otherwise labels `[batch]` and outputs `[batch, 1]` would broadcast.

    Args:
        labels: `[batch]` or `[batch, ...]`.
        outputs: `[batch, ...]`.

    Raises:
        ValueError: A rank is unknown.
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
    """Return labels and outputs of the same shape, for a loss that compares them elementwise.

    Args:
        labels: `[batch, ...]`, of the rank of `outputs`.
        outputs: `[batch, ...]`; `[batch]` becomes `[batch, 1]`.

    Raises:
        ValueError: The shapes differ, or labels are strings.
        InvalidArgumentError: The sizes differ, for shapes that are known only at run time.
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
        labels = tf.reshape(labels, tf.shape(outputs))  # fails if the sizes differ
    return labels, outputs


def zero_where_unweighted(labels: Tensors, weights: Tensors, *, but: int | None = None) -> Tensors:
    """Return labels with 0 wherever the weight is 0, or with 1 if `but` is 0.

    Placeholders for unknown labels, such as NaN or class -1, would otherwise cause a NaN gradient
    (0 · NaN) or an error.

    Args:
        labels: Numbers `[batch, ...]`; other labels are returned unchanged.
        weights: `[batch]` or `[batch, ...]`, aligned with labels from the left. None: labels are
            returned unchanged.
        but: The label that the loss masks (`ignore_class`). Rows with this label keep it, and no
            other row gets it.
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
        return labels  # the shapes do not fit, which the loss reports
    off = tf.equal(weights, tf.zeros_like(weights))
    if but is None:
        return tf.where(off, tf.zeros_like(labels), labels)
    off = tf.logical_and(off, tf.not_equal(labels, tf.cast(but, labels.dtype)))
    return tf.where(off, tf.cast(1 if but == 0 else 0, labels.dtype), labels)
