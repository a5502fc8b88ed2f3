"""The names of classes, from the label's positive value and the raw schema, and in signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shared_core.feature_layout import LayoutLabel
from trainer_module.tfx.label_names import LabelNames, label_names, with_classes

TEXTS = 'feature {{ name: "y" type: BYTES string_domain {{ {} }} }}'


def test_two_classes(tmp_path):
    """Without values the column holds ints, as a bool of CSV does."""
    for positive, values, expected in [
        ("yes", ["no", "yes"], ["no", "yes"]),
        ("yes", ["maybe", "no", "yes"], ["not yes", "yes"]),
        ("true", ["false", "true", "unknown"], ["not true", "true"]),
        ("True", None, ["False", "True"]),
        (None, None, ["0", "1"]),
    ]:
        schema = tmp_path / "schema.pbtxt"
        text = 'feature { name: "y" type: INT }'
        if values is not None:
            text = TEXTS.format(" ".join(f'value: "{value}"' for value in values))
        schema.write_text(text)
        label = LayoutLabel(name="y", kind="binary", positive=positive)
        found = label_names(
            label, numbers=2, transform_output=None, loss=None, raw_schema=str(schema)
        )
        assert found.classes == expected


# Reference of the outputs: NumPy in float64, to 1e-6.
BINARY = LabelNames("sold", "binary", ["no", "yes"], "probabilities")
KINDS = LabelNames("kind", "multiclass", ["a", "b", "ü"], "probabilities")
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(scale=3, size=(20, 3))


def served(values: Any, names: LabelNames) -> dict[str, np.ndarray]:
    found = with_classes({"outputs": tf.constant(values, tf.float32)}, names)
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.mark.parametrize(("logits", "shape"), [(False, (-1,)), (True, (-1, 1))])
def test_the_outputs_of_two_classes(logits, shape):
    positive = 1 / (1 + np.exp(-LOGITS[:, 0]))
    values = LOGITS[:, 0] if logits else positive
    names = BINARY._replace(outputs="logits") if logits else BINARY
    found = served(values.reshape(shape), names)
    np.testing.assert_allclose(found["outputs"], values.reshape(shape), atol=1e-6)
    np.testing.assert_allclose(
        found["probabilities"], np.stack([1 - positive, positive], axis=1), atol=1e-6
    )
    assert found["classes"].tolist() == [[b"no", b"yes"]] * 20
    assert found["prediction"].tolist() == [[b"yes" if p > 0.5 else b"no"] for p in positive]


def test_several_classes():
    for logits in [False, True]:
        powers = np.exp(LOGITS)
        probabilities = powers / powers.sum(axis=1, keepdims=True)
        names = KINDS._replace(outputs="logits") if logits else KINDS
        found = served(LOGITS if logits else probabilities, names)
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-6)
        chosen = [["a", "b", "ü"][i].encode() for i in probabilities.argmax(axis=1)]
        assert found["prediction"][:, 0].tolist() == chosen
        assert len(set(chosen)) == 3


def test_outputs_of_unknown_meaning_are_unchanged():
    for outputs, names in [
        ({"outputs": LOGITS[:, :1]}, LabelNames("price", "regression", None, "values")),
        ({"outputs": LOGITS}, KINDS._replace(outputs="values")),
        ({"outputs": LOGITS[:, :2]}, KINDS),
        ({"outputs": LOGITS}, BINARY),
        ({"outputs": LOGITS[:, :, np.newaxis]}, KINDS),
        ({"kind": LOGITS}, KINDS),
        ({"outputs": LOGITS, "kind": LOGITS}, KINDS),
    ]:
        found = with_classes({name: tf.constant(values) for name, values in outputs.items()}, names)
        assert set(found) == set(outputs)


def test_evaluator_reads_the_same_outputs():
    """TFMA picks one of several outputs by their names, and may read labels by others."""
    for values, names in [(LOGITS[:, :1], BINARY), (LOGITS, KINDS)]:
        from tensorflow_model_analysis.metrics import metric_util

        labels = np.arange(20) % 2
        found = metric_util.prepare_labels_and_predictions(labels, served(values, names))
        before = metric_util.prepare_labels_and_predictions(labels, np.float32(values))
        for one, other in zip(found, before, strict=True):
            np.testing.assert_array_equal(one, other)
