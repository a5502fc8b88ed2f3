"""Default models of pictures and of tokens, against full batches and other paddings.

Exactness: a training in micro-batches against one full batch in plain TensorFlow, in float64 to
1e-10. Padding, recomputation and XLA: against the same rows without it, in float32 to 1e-6 and 1e-5
of the largest value.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from shared_core.feature_layout import FeatureLayout, ImageFeature, TokenFeature
from trainer_module import TrainerConfig, TrainStep, accumulate_gradients, weighted_loss
from trainer_module.model.default_model import default_model
from trainer_module.model.layers import PixelNormalization
from trainer_module.model.model_context import ModelContext
from trainer_module.stages.recompute import recompute_layers

ROWS = 7
PHOTO = ImageFeature(
    name="photo", source="path", group="g", height=8, width=6, channels=3,
    mean=(100.0, 120.0, 7.0), variance=(900.0, 2500.0, 0.0),
)  # fmt: skip
TEXT = TokenFeature(name="text", source="t", group="g", max_length=64, vocabulary_size=20)
KINDS = {
    "conv": {"filters": [4, 6], "activation": "tanh"},
    "transformer": {"width": 8, "heads": 2, "activation": "tanh"},
}


def context(kind, *, layout=None, **options):
    layout = layout or FeatureLayout(
        columns=(),
        images=(PHOTO,) if kind == "conv" else (),
        tokens=(TEXT,) if kind == "transformer" else (),
    )
    spec: dict = {each.name: None for each in (*layout.images, *layout.tokens)}
    spec["numbers"] = tf.io.FixedLenFeature([2], tf.float32)
    model = {"kind": kind, "hidden_units": [5], **KINDS.get(kind, {}), **options}
    config = TrainerConfig.parse({"model": model})
    return ModelContext(spec, None, layout, "y", "regression", 1, {}, config)


def model_of(kind, **options):
    """A default model whose last layer has the precision of the others."""
    model = default_model(context(kind, **options))
    output = keras.layers.Dense(1, name="last")(model.get_layer("outputs").input)
    return keras.Model(model.input, output)


def rows_of(kind, length=12):
    """Features and labels; text 3 has no tokens, and no text has more than 12."""
    random = np.random.default_rng(0)
    features = {"numbers": random.normal(size=(ROWS, 2)).astype(keras.config.floatx())}
    if kind == "conv":
        features["photo"] = random.integers(0, 256, (ROWS, 8, 6, 3)).astype("uint8")
    else:
        ids = random.integers(1, 20, (ROWS, 12))
        lengths = np.array([12, 1, 5, 0, 7, 12, 3])
        ids[np.arange(12) >= lengths[:, None]] = 0
        features["text"] = np.pad(ids, ((0, 0), (0, length - 12)))
    return features, random.normal(size=(ROWS, 1)).astype(keras.config.floatx())


def gradients(model, features, labels, **options):
    """Outputs, and dense gradients of windows of three rows."""

    @tf.function(autograph=False)
    def sums():
        total = accumulate_gradients(
            model, weighted_loss("mse"), features, labels, micro_batch_size=3, **options
        )
        return [tf.convert_to_tensor(g) for g in total.gradients]

    return [model(features), *sums()]


def close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, atol=tolerance * max(1, np.abs(other).max()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_in_micro_batches_equals_full_batches(kind, passes_of_one):
    with full_batch.precision("float64"):
        model, reference = model_of(kind), model_of(kind)
        reference.set_weights(model.get_weights())
        features, labels = rows_of(kind)
        batches = [(features, labels, np.linspace(0.0, 2.0, ROWS))] * 2
        step = TrainStep(model, keras.optimizers.SGD(0.1, momentum=0.9), "mse", micro_batch_size=2)
        for batch in batches:
            step(batch)
        full_batch.train(reference, keras.optimizers.SGD(0.1, momentum=0.9), "mlp", batches)
        close(model.get_weights(), reference.get_weights(), 1e-10)


def test_padding_does_not_change_outputs_and_gradients():
    model = model_of("transformer")
    short, long = (gradients(model, *rows_of("transformer", length)) for length in (16, 64))
    close(short, long, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_recomputation_xla_and_16_bits_give_the_same_gradients(kind, tmp_path):
    model, rows = model_of(kind), rows_of(kind)
    expected = gradients(model, *rows)
    if kind == "transformer":
        close(gradients(model, *rows, jit_compile=True), expected, 1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    recompute_layers(loaded, [f"{'photo' if kind == 'conv' else 'text'}_block_{i}" for i in (1, 2)])
    close(gradients(loaded, *rows), expected, 1e-6)
    with full_batch.precision("mixed_bfloat16"):
        coarse = model_of(kind)
        coarse.set_weights(model.get_weights())
        outputs, *found = gradients(coarse, *rows)
    close([outputs], expected[:1], 0.03)
    joined = [np.concatenate([np.ravel(g) for g in each]) for each in (found, expected[1:])]
    assert np.linalg.norm(joined[0] - joined[1]) < 0.03 * np.linalg.norm(joined[1])


def test_no_convolution_of_single_pixels_has_strides():
    """TensorFlow 2.16 ends such a training: double free or corruption, for odd numbers of rows."""
    made = default_model(context("conv", filters=[8, 16, 32]))._flatten_layers()
    found = [layer for layer in made if isinstance(layer, keras.layers.Conv2D)]
    assert any(layer.strides == (2, 2) for layer in found)
    assert not any(layer.strides == (2, 2) and layer.kernel_size == (1, 1) for layer in found)


def test_pixels_are_normalised_by_channel():
    """Reference: the formula in NumPy; a variance of 0 gives 0."""
    pixels = rows_of("conv")[0]["photo"]
    expected = (pixels - np.array(PHOTO.mean)) / np.sqrt([900, 2500, np.inf])
    layer = PixelNormalization(PHOTO.mean, PHOTO.variance)
    again = PixelNormalization.from_config(layer.get_config())
    np.testing.assert_allclose(again(pixels), expected, atol=1e-6)
    assert PixelNormalization([1], [2], dtype="mixed_bfloat16")(pixels).dtype == tf.bfloat16


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mlp", {"layout": FeatureLayout(columns=(), images=(PHOTO,))}, "'photo'.*kind: conv"),
        ("conv", {"layout": FeatureLayout(columns=(), tokens=(TEXT,))}, "'text'.*transformer"),
        ("conv", {"layout": FeatureLayout(columns=())}, "kind='conv' has no feature.*image"),
        ("mlp", {"filters": [3]}, r"filters=\(3,\) has no effect.*'conv' reads"),
        ("conv", {"blocks": 3}, "blocks=3 has no effect.*'transformer' reads"),
        ("conv", {"linear": True}, "linear=True has no effect"),
        ("transformer", {"width": 10, "heads": 4}, "width=10 .*heads=4"),
    ],
)
def test_what_does_not_fit_is_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        default_model(context(kind, **options))
