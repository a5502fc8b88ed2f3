"""The meaning of a model's outputs: names of the classes, for readers of its predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

import tensorflow as tf

from shared_core.feature_layout import LayoutLabel
from trainer_module.common.tensors import LossFunction
from trainer_module.losses.weighted_loss import WeightedLoss
from trainer_module.model.data_context import class_names
from trainer_module.model.model_context import TransformOutput

FILE = "assets.extra/label.json"

_Outputs = Literal["probabilities", "logits", "values"]
# Bools of CSV files become ints; the raw schema does not list their names.
_BOOLS = {"True": "False", "true": "false", "TRUE": "FALSE"}
_OPPOSITES = _BOOLS | {other: word for word, other in _BOOLS.items()}
OUTPUTS = "outputs"


class LabelNames(NamedTuple):
    """The meaning of a model's outputs."""

    column: str
    kind: str | None  # binary, multiclass or regression
    # Names in the order of the model's outputs. For a binary label the negative class comes first;
    # it is `not <positive>` if the data has several other values. None for a regression
    classes: list[str] | None
    # Kind of the outputs: probabilities, logits, or values whose meaning only the loss knows
    outputs: _Outputs


def label_names(
    label: LayoutLabel,
    *,
    numbers: int,
    transform_output: TransformOutput,
    loss: LossFunction | None,
    raw_schema: str | None,
) -> LabelNames:
    """Return what is known about the outputs of a model that was trained on a label."""
    classes = None
    if label.kind == "binary":
        classes = _two_classes(label, raw_schema)
    elif label.kind == "multiclass":
        classes = class_names(transform_output) or [str(i) for i in range(numbers)]
    outputs = "values" if label.kind == "regression" else _outputs(loss)
    return LabelNames(label.name, label.kind, classes, outputs)


def write_label(directory: str, names: LabelNames) -> None:
    """Write `assets.extra/label.json` of a SavedModel, for `predict`."""
    written = {"version": 1, **names._asdict()}
    with tf.io.gfile.GFile(f"{directory}/{FILE}", "w") as stream:
        stream.write(json.dumps(written, indent=1))


def _two_classes(label: LayoutLabel, raw_schema: str | None) -> list[str]:
    if label.positive is None:
        return ["0", "1"]
    positive = str(label.positive)
    others = [name for name in _domain(label.name, raw_schema) if name != positive]
    if not others and positive in _OPPOSITES:
        others = [_OPPOSITES[positive]]
    return [others[0] if len(others) == 1 else f"not {positive}", positive]


def _domain(column: str, raw_schema: str | None) -> list[str]:
    """Return the values of a string column if the raw schema lists them."""
    if not raw_schema:
        return []
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    with tf.io.gfile.GFile(raw_schema) as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    shared = {domain.name: list(domain.value) for domain in schema.string_domain}
    for feature in schema.feature:
        if feature.name == column:
            return shared.get(feature.domain) or list(feature.string_domain.value)
    return []


def _outputs(loss: LossFunction | None) -> _Outputs:
    if loss is None:
        return "probabilities"
    if isinstance(loss, WeightedLoss) and len(loss.terms) == 1:
        if loss.terms[0].loss.probabilities:
            return "probabilities"
        if getattr(loss.loss, "from_logits", False):
            return "logits"
    return "values"


def with_classes(outputs: Mapping[str, tf.Tensor], names: LabelNames) -> dict[str, tf.Tensor]:
    """Return the outputs of a signature, and their meaning if the model is a classifier.

        outputs        the model's outputs; for a binary label, the positive class only
        prediction     string [rows, 1]: the most probable class
        classes        string [rows, classes]: all classes, the same in each row
        probabilities  [rows, classes], in the order of `classes`

    `prediction` has two axes because BulkInferrer does not accept one string per row. `classes` is
    as in TensorFlow's classification signatures. Their `scores` are named `probabilities` here,
    because TFMA prefers `scores` to `outputs` and would then match labels by `classes`.

    Only the outputs are returned if there are several, or if their meaning is unknown.
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
