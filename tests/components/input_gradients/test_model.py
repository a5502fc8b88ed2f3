"""The path integral, the columns of a file, and the log.

The signature is written by hand, as for a model of another library.
"""

from __future__ import annotations

import logging
import re

import numpy as np
import pyarrow as pa
import tensorflow as tf

from components.input_gradients.executor import _attributions_of, _log_end
from components.input_gradients.summary import AttributionSummary


def test_a_square_is_attributed_exactly_with_two_points(tmp_path):
    """f(x) = x², in float32; its attribution is x²."""
    specs = {"x": tf.TensorSpec([None, 1], name="x")}
    points = [tf.TensorSpec([None], tf.float64, name=f"path_{n}") for n in ("shares", "weights")]

    @tf.function(input_signature=[specs["x"], *points])
    def explain(x, path_shares, path_weights):
        gradients = 2 * x * tf.cast(path_shares, tf.float32)
        return {
            "prediction": x[:, 0] ** 2,
            "baseline_prediction": 0 * x[:, 0],
            "attributions": x
            * tf.linalg.matvec(gradients, tf.cast(path_weights, tf.float32))[:, None],
            "columns": tf.constant(["x"]),
            "class": tf.cast(x[:, 0] > 0, tf.int64),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(examples):
        return tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})

    signatures = {"input_gradients": explain, "transform_features": transform}
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures)
    rows = np.linspace(-2, 3, 600, dtype=np.float32)  # more than one pass
    batch = pa.RecordBatch.from_arrays(
        [pa.array([[x] for x in rows], pa.large_list(pa.float32()))], ["x"]
    )
    found = _attributions_of(batch, str(tmp_path), "eval", 2).to_pydict()
    assert found["class"] == (rows > 0).tolist()
    assert np.ravel(found["raw.x"]).tolist() == rows.tolist()
    np.testing.assert_allclose(found["prediction"], rows**2, rtol=1e-6)
    np.testing.assert_allclose(found["attribution.x"], rows**2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["completeness_error"], np.zeros(600), atol=1e-5)


def test_a_large_error_is_a_warning(caplog):
    """The limit is 1 % of the mean change."""
    means = dict.fromkeys(("mean_prediction", "mean_absolute_change"), 2.0)
    columns = {name: {"x": 2.0} for name in ("mean_absolute", "mean")}
    for error, warned in ((0.019, []), (0.021, ["steps=32"])):
        summary = AttributionSummary(
            **means, **columns, mean_baseline_prediction=0.0, split="eval", steps=8, rows=1,
            mean_absolute_completeness_error=error,
        )  # fmt: skip
        with caplog.at_level(logging.WARNING, logger="absl"):
            _log_end(summary)
        assert re.findall(r"such as (steps=\d+)", caplog.text) == warned
