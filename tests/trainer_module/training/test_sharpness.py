"""The sharpness of a trained model, against NumPy's eigenvalues of a logistic model's Hessian."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from trainer_module import run_fn
from trainer_module.common.progress import SharpnessMeasured

pytestmark = pytest.mark.slow
SETTINGS = {
    "label": "generous",
    "model_fn": "user_model.fare_only",
    "global_batch_size": 50,
    "epochs": 1,
}


@pytest.fixture
def measured(progress_records):
    """Returns a function that returns the records of the sharpness."""
    return lambda: [each for each in progress_records if isinstance(each, SharpnessMeasured)]


def rows_of(data):
    """Feature and label `[rows]` of the training rows."""
    spec = tft.TFTransformOutput(data.graph).transformed_feature_spec()
    files = tf.io.gfile.glob(data.train)
    records = [r.numpy() for r in tf.data.TFRecordDataset(files, compression_type="GZIP")]
    parsed = tf.io.parse_example(records, spec)
    return parsed["fare_scaled"].numpy().ravel(), parsed["generous"].numpy().ravel()


def test_it_is_that_of_the_exported_weights(fn_args, transformed, measured):
    """Tolerance 1e-4 relative, in float32."""
    devices = {"strategy": "mirrored", "logical_devices": 2}
    weights = {"0": 1, "1": 3}
    args = fn_args(
        **SETTINGS, **devices, sharpness_rows=600, ema_momentum=0.9, class_weight=weights
    )
    result = run_fn(args)
    fare, label = rows_of(transformed)
    exported = tf.saved_model.load(args.serving_model_dir).variables
    kernel, bias = (v.numpy().ravel()[0] for v in exported if v.trainable)
    p = 1 / (1 + np.exp(-(kernel * fare + bias)))
    curvature = np.where(label == 1, 3, 1) * p * (1 - p) / np.where(label == 1, 3, 1).sum()
    x = np.stack([fare, np.ones_like(fare)], axis=1)
    wanted = np.linalg.eigvalsh((x * curvature[:, None]).T @ x)[-1]
    (found,) = measured()
    assert found.value == pytest.approx(wanted, rel=1e-4)
    assert (found.rows, found.products) == (600, 2)
    assert found.residual <= 1e-3 * found.value
    written = [
        (event.step, value.simple_value)
        for file in Path(args.model_run_dir).glob("train/events*")
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == "sharpness"
    ]
    assert written == [(result.steps, pytest.approx(found.value))]


def test_a_loss_without_second_derivative_is_exported_without_a_sharpness(
    fn_args, measured, warnings
):
    loss = "user_model.incomplete_gamma"
    args = fn_args(**SETTINGS, loss=loss, metrics=[], sharpness_rows=200, tensorboard=False)
    assert run_fn(args).stopped == "epochs"
    assert Path(args.serving_model_dir, "saved_model.pb").exists()
    assert measured() == []
    (warning,) = (line for line in warnings if "sharpness" in line)
    assert "The sharpness is not known: " in warning
    assert "IgammaGradA" in warning
