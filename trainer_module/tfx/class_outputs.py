"""Extra outputs of a classifier's signatures: its classes and a probability for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer_module.tfx.label_names import LabelNames

OUTPUTS = "outputs"


def with_classes(outputs: Mapping[str, Any], names: LabelNames) -> dict[str, Any]:
    """The outputs of a signature, and what they mean where the model is a classifier.

        outputs        as the model gives them; of a binary label the positive class's alone
        prediction     text [rows, 1]: the class that is most probable
        classes        text [rows, classes]: all of them, the same in each row
        probabilities  [rows, classes], in the order of `classes`

    `prediction` has two axes for BulkInferrer, which takes no single text for a row. `classes` is
    as in TensorFlow's classification signatures, whose `scores` are `probabilities` here: TFMA
    takes `scores` before `outputs`, and then reads labels by `classes`.

    Args:
        outputs: by name; `[rows, classes]`, or `[rows, 1]` or `[rows]` of a binary label.
        names: of the label.

    Returns:
        The outputs alone where they are several, or where their meaning is not known.
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
    """`[rows, classes]`, or None where the outputs are of another shape."""
    logits = names.outputs == "logits"
    if names.kind == "binary" and (values.shape.rank == 1 or values.shape[1:] == [1]):
        positive = tf.reshape(values, [-1])
        if logits:
            return tf.stack([tf.sigmoid(-positive), tf.sigmoid(positive)], axis=1)
        return tf.stack([1 - positive, positive], axis=1)
    if values.shape.rank != 2:
        return None
    return tf.nn.softmax(values) if logits else values
