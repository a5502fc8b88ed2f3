"""The path integral through a signature that is written by hand, as for another library's model."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from components.input_gradients.model import ExplainedModel


def test_a_square_is_attributed_exactly_with_two_points(tmp_path):
    """f(x) = x²; the mean over the baselines b is x² - mean(b²), in float32."""
    shapes = {"x": [None, 1], "baseline_x": [1, 1], "share": []}
    specs = [tf.TensorSpec(shape, name=name) for name, shape in shapes.items()]

    @tf.function(input_signature=specs)
    def explain(x, baseline_x, share):
        point = baseline_x + share * (x - baseline_x)
        return {
            "prediction": point[:, 0] ** 2,
            "attributions": 2 * point * (x - baseline_x),
            "columns": tf.constant(["x"]),
        }

    tf.saved_model.save(tf.Module(), str(tmp_path), {"input_gradients": explain})
    model = ExplainedModel(str(tmp_path), transformed=True)
    rows = np.linspace(-2, 3, 5, dtype=np.float32)
    baselines = {"x": tf.constant([[1.0], [3.0]])}
    found = model.attribute({"x": rows[:, np.newaxis]}, baselines, steps=2, batch_rows=2)
    assert found.columns == ("x",)
    np.testing.assert_allclose(found.prediction, rows**2, rtol=1e-6)
    np.testing.assert_allclose(found.baseline_prediction, np.full(5, 5.0))
    np.testing.assert_allclose(found.attributions[:, 0], rows**2 - 5.0, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(found.completeness_error, np.zeros(5), atol=1e-5)
