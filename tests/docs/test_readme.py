"""README.md: its Keras program, and what its table says of other tools.

Its commands and their output: tests/e2e/test_readme.py.
"""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from command_line import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM, PRINTED = re.findall(
    r"```python\n(import keras.*?)```\n\n```\n(.*?)```", README, re.DOTALL
)[0]


def test_the_program_takes_the_steps_of_one_full_batch(capsys):
    """Reference: five full-batch steps of least squares in NumPy. Tolerance: the printed digits."""
    exec(PROGRAM, {})
    printed = capsys.readouterr().out
    assert printed == PRINTED
    x = np.random.default_rng(0).normal(size=(250, 4)).astype("float32").astype("float64")
    kernel, bias = np.zeros(4), 0.0
    for _ in range(5):
        error = x @ kernel + bias - x.sum(axis=1)
        kernel, bias = kernel - 0.2 * x.T @ error / 250, bias - 0.2 * error.mean()
    lines = [
        [float(number) for number in re.findall(r"\d\.\d+", line)] for line in printed.splitlines()
    ]
    assert len(lines) == 2
    for line in lines:
        np.testing.assert_allclose(line, kernel, atol=6e-5)


def keras_fit(strategy: tf.distribute.Strategy, *batches: np.ndarray, **options: int) -> float:
    """The weight of `label = weight * feature` after one SGD step per batch or window."""
    with strategy.scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.01, **options), "mean_squared_error")
    rows = iter(batches)
    dataset = tf.data.Dataset.from_generator(
        lambda: ((batch, batch) for batch in rows),
        output_signature=(tf.TensorSpec((None, 1)), tf.TensorSpec((None, 1))),
    )
    model.fit(dataset, verbose=0)
    return float(layer.kernel.numpy()[0, 0])


def test_accumulation_of_keras_is_as_the_table_says():
    rows = np.arange(5, dtype="float32").reshape(-1, 1)
    default = tf.distribute.get_strategy()
    full = keras_fit(default, rows)
    assert full == pytest.approx(0.01 * 2 * np.mean(rows**2), rel=1e-6)
    window = keras_fit(default, rows[:4], rows[4:], gradient_accumulation_steps=2)
    equally = np.mean([np.mean(rows[:4] ** 2), np.mean(rows[4:] ** 2)])
    assert window == pytest.approx(0.01 * 2 * equally, rel=1e-6)
    assert window > 1.5 * full
    partial = (rows[:4], rows[4:], rows)  # one whole window, and one batch of the next
    assert keras_fit(default, *partial, gradient_accumulation_steps=2) == window
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    with pytest.raises(RuntimeError, match="merge_call"):
        keras_fit(mirrored, rows[:4], rows[4:], gradient_accumulation_steps=2)


@pytest.mark.slow
def test_nan_passes_through_tft_as_the_table_says(tmp_path):
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    spec = {"x": tf.io.FixedLenFeature([], tf.float32)}
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(spec))
    rows = [{"x": value} for value in (1.0, 3.0, float("nan"))]
    with tft_beam.Context(temp_dir=str(tmp_path)):
        (transformed, _), _ = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(
            lambda inputs: {"z": tft.scale_to_z_score(inputs["x"])}
        )
    np.testing.assert_allclose([row["z"] for row in transformed], [-1.0, 1.0, np.nan])
