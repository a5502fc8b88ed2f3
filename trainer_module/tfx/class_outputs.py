"""Add the classes and their probabilities to a classifier's signatures."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from trainer_module.tfx.label_names import LabelNames

OUTPUTS = "outputs"


def with_classes(outputs: Mapping[str, tf.Tensor], names: LabelNames) -> dict[str, tf.Tensor]:
    """Return the outputs of a signature, and their meaning if the model is a classifier.

        outputs        the model's outputs; for a binary label, the positive class only
        prediction     string [rows, 1]: the most probable class
        classes        string [rows, classes]: all classes, the same in each row
        probabilities  [rows, classes], in the order of `classes`

    `prediction` has two axes because BulkInferrer does not accept one string per row. `classes` is
    as in TensorFlow's classification signatures. Their `scores` are named `probabilities` here,
    because TFMA prefers `scores` to `outputs` and would then match labels by `classes`.

    Args:
        outputs: Tensors by name; `[rows, classes]`, or `[rows, 1]` or `[rows]` for a binary label.
        names: Names of the label and its classes.

    Returns:
        Only the outputs if there are several, or if their meaning is unknown.
    """
    values = outputs.get(OUTPUTS)
    if names.classes is None or names.outputs == "values" or values is None or len(outputs) > 1:
        return dict(outputs)
    probabilities = _probabilities(values, names)
    if probabilities is None or probabilities.shape[-1] != len(names.classes):
        return dict(outputs)
    classes = tf.constant(names.classes, tf.string)
    rows = tf.shape(probabilities)[0]
    return {
        **outputs,
        "prediction": tf.gather(classes, tf.argmax(probabilities, axis=1)[:, tf.newaxis]),
        "classes": tf.tile(classes[tf.newaxis], [rows, 1]),
        "probabilities": probabilities,
    }


def _probabilities(values: tf.Tensor, names: LabelNames) -> tf.Tensor | None:
    """Return probabilities `[rows, classes]`, or None if the outputs have another shape."""
    logits = names.outputs == "logits"
    if names.kind == "binary" and (values.shape.rank == 1 or values.shape[1:] == [1]):
        positive = tf.reshape(values, [-1])
        if logits:
            return tf.stack([tf.sigmoid(-positive), tf.sigmoid(positive)], axis=1)
        return tf.stack([1 - positive, positive], axis=1)
    if values.shape.rank != 2:
        return None
    return tf.nn.softmax(values) if logits else values
