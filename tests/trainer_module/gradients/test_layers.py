"""per_example_gradients for each family of layers. Reference: a tape per row in float64, 1e-6."""

from __future__ import annotations

import full_batch
import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import clipped_gradient_sum, per_example_gradients

L = keras.layers


class Gated(L.Layer):
    """A custom layer: each variable is used twice."""

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(input_shape[-1],), initializer="normal")

    def call(self, x):
        return x * keras.ops.sigmoid(self.gate * x)


def attention(x):
    return L.MultiHeadAttention(2, 3)(x, x)


def frozen_batch_normalisation(x):
    """Frozen, it runs in inference mode; otherwise it is rejected."""
    layer = L.BatchNormalization()
    layer.trainable = False
    return layer(x)


def group_normalisation(x):
    return L.GroupNormalization(2)(L.Dense(4)(x))


def convolution(x):
    """Without padding; its kernel is not larger than the image."""
    return L.Conv2D(3, min(3, *x.shape[1:3]), activation="relu")(x)


ROWS, SEQUENCE, IMAGE, IDS = "rows", "sequence", "image", "ids"
SHAPES = {ROWS: (6,), SEQUENCE: (4, 3), IMAGE: (4, 5, 2), IDS: (4,)}

# What a layer takes, what it returns, and the layer.
FAMILIES = {
    "dense": (ROWS, ROWS, lambda x: L.Dense(3, activation="tanh")(x)),
    "layer_norm": (ROWS, ROWS, lambda x: L.LayerNormalization()(L.Dense(4)(x))),
    "frozen_batch_norm": (ROWS, ROWS, lambda x: frozen_batch_normalisation(L.Dense(4)(x))),
    "custom": (ROWS, ROWS, lambda x: Gated()(L.Dense(4)(x))),
    "embedding": (IDS, SEQUENCE, lambda x: L.Embedding(7, 3)(x)),
    "conv_1d": (SEQUENCE, SEQUENCE, lambda x: L.Conv1D(2, 3, strides=2, padding="same")(x)),
    "causal": (SEQUENCE, SEQUENCE, lambda x: L.Conv1D(2, 3, padding="causal", dilation_rate=2)(x)),
    "attention": (SEQUENCE, SEQUENCE, attention),
    "gru": (SEQUENCE, SEQUENCE, lambda x: L.GRU(3, return_sequences=True)(x)),
    "lstm": (SEQUENCE, ROWS, lambda x: L.LSTM(3)(x)),
    "bidirectional": (SEQUENCE, ROWS, lambda x: L.Bidirectional(L.SimpleRNN(2))(x)),
    "sequence_norm": (SEQUENCE, SEQUENCE, lambda x: L.LayerNormalization()(x)),
    "sequence_pooling": (SEQUENCE, SEQUENCE, lambda x: L.MaxPooling1D(2, 1, padding="same")(x)),
    "average_pooling": (SEQUENCE, ROWS, lambda x: L.GlobalAveragePooling1D()(L.Dense(3)(x))),
    "conv_2d": (IMAGE, IMAGE, convolution),
    "transposed": (IMAGE, IMAGE, lambda x: L.Conv2DTranspose(3, 3, strides=2)(x)),
    "depthwise": (
        IMAGE,
        IMAGE,
        lambda x: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same")(x),
    ),
    "separable": (IMAGE, IMAGE, lambda x: L.SeparableConv2D(3, 3, padding="same")(x)),
    "group_norm": (IMAGE, IMAGE, group_normalisation),
    "max_pooling": (IMAGE, IMAGE, lambda x: L.MaxPooling2D(2, padding="same")(L.Dense(3)(x))),
    "lines": (IMAGE, SEQUENCE, lambda x: L.Reshape((x.shape[1], -1))(x)),
}


def model_and_rows(families, rows=4):  # in chunks of 3: the last one has one row
    """The layers one after another; each takes what the one before returns."""
    taken = FAMILIES[families[0]][0]
    shape, ids = SHAPES[taken], taken == IDS
    x = hidden = keras.Input(shape, dtype="int64" if ids else keras.config.floatx())
    for family in families:
        hidden = FAMILIES[family][2](hidden)
    model = keras.Model(x, L.Dense(1)(L.Flatten()(hidden)))
    random = np.random.default_rng(0)
    features = random.integers(0, 7, (rows, *shape)) if ids else random.normal(size=(rows, *shape))
    return model, features, random.normal(size=(rows, 1)), random.uniform(0.5, 2, rows)


def check_against_tapes(model, features, labels, weights):
    rows = []
    variables = [v.value for v in model.trainable_variables]
    for i in range(len(weights)):
        with tf.GradientTape() as tape:
            outputs = model(features[i : i + 1])
            loss = weights[i] * tf.reduce_sum((outputs - labels[i : i + 1]) ** 2)
        rows.append([tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)])
    wanted = [np.stack(each) for each in zip(*rows, strict=True)]
    data = map(tf.constant, (features, labels, weights))
    found = tf.function(
        lambda *data: per_example_gradients(model, "mse", *data, chunk_size=3), autograph=False
    )(*data)
    largest = max(np.abs(each).max() for each in wanted)  # a key's bias has a gradient of 0
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6 * largest)


@pytest.mark.parametrize(
    "families",
    [
        ["dense", "layer_norm", "frozen_batch_norm", "custom"],
        ["embedding", "conv_1d", "causal", "attention"],
        ["gru", "sequence_norm", "sequence_pooling", "bidirectional"],
        ["conv_2d", "group_norm", "max_pooling", "lines", "average_pooling"],
        ["transposed", "depthwise"],
        ["separable"],
    ],
    ids="-".join,
)
def test_they_are_those_of_a_tape_per_row(float64, families):
    check_against_tapes(*model_and_rows(families))


def test_xla_computes_the_same(float64):
    """4 rows in chunks of 3: XLA would pad the second chunk."""
    x = keras.Input((3, 2), dtype="float64")
    model = keras.Model(x, L.Dense(1)(L.Flatten()(x)))
    random = np.random.default_rng(0)
    features = random.normal(size=(4, 3, 2))
    data = tf.constant(features), tf.constant(random.normal(size=(4, 1)))

    def gradients(*data):
        return [
            *per_example_gradients(model, "mse", *data, chunk_size=3),
            *clipped_gradient_sum(model, "mse", *data, clip_norm=0.5, chunk_size=3),
        ]

    found, wanted = (
        tf.function(gradients, autograph=False, jit_compile=xla)(*data) for xla in (True, False)
    )
    assert [t.shape for t in found] == [t.shape for t in wanted]
    assert full_batch.error(found, wanted) < 1e-6


def test_what_xla_cannot_compute_is_rejected():
    x = keras.Input((3, 2))
    recurrent = keras.Model(x, L.SimpleRNN(1)(x))
    positive = L.Lambda(lambda x: x[:, 0] * tf.reduce_sum(tf.boolean_mask(x, x > 0)))
    masked = keras.Model(x, L.Dense(1)(positive(x)))
    for model, rows, message in [
        (recurrent, 4, "jit_compile=True, and the model has a loop"),
        (masked, 4, r"jit_compile=True.* tf.boolean_mask"),
        (keras.Model(x, L.Dense(1)(L.Flatten()(x))), None, "number of rows is not known"),
    ]:
        function = tf.function(
            lambda *data, model=model: per_example_gradients(model, "mse", *data, chunk_size=3),
            autograph=False,
            jit_compile=True,
            input_signature=[tf.TensorSpec([rows, 3, 2]), tf.TensorSpec([rows, 1])],
        )
        with pytest.raises(ValueError, match=message):
            function.get_concrete_function()


@st.composite
def stacks(draw):
    """Two to four families, of which each takes what the one before returns."""
    kind = draw(st.sampled_from([IDS, IMAGE, SEQUENCE, ROWS]))
    families = []
    for _ in range(draw(st.integers(2, 4))):
        fitting = [name for name, (taken, _, _) in FAMILIES.items() if taken == kind]
        families.append(draw(st.sampled_from(fitting)))
        kind = FAMILIES[families[-1]][1]
    return families


@pytest.mark.slow
@hypothesis.settings(max_examples=4)
@hypothesis.given(families=stacks(), rows=st.integers(1, 4))
def test_stacks_of_layers(families, rows):
    with full_batch.precision("float64"):
        check_against_tapes(*model_and_rows(families, rows))


def test_attention_in_float32_ends_no_process():
    """The softmax of oneDNN crashes for scores of rank 5, as tf.vectorized_map makes them."""
    x = keras.Input((16, 32))
    model = keras.Model(x, L.MultiHeadAttention(4, 8)(x, x))
    rows = np.random.default_rng(0).normal(size=(2, 8, 16, 32)).astype("float32")
    found = per_example_gradients(model, "mse", *rows, chunk_size=4)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.reduce_mean((model(rows[0]) - rows[1]) ** 2, -1))
    wanted = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(tf.reduce_sum(mine, 0), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [L.Dropout, L.GaussianNoise])
def test_each_row_has_separate_random_numbers(float64, layer):
    x = keras.Input((6,), dtype="float64")
    model = keras.Model(x, L.Dense(1)(layer(0.5)(L.Dense(8)(x))))
    same = np.ones((5, 6)), np.ones((5, 1))
    whole = per_example_gradients(model, "mse", *same, chunk_size=5)
    rows = np.concatenate([np.reshape(g, (5, -1)) for g in whole], 1)
    assert len(np.unique(rows.round(9), axis=0)) == 5
    chunks = per_example_gradients(model, "mse", *same, chunk_size=2)
    assert full_batch.error(chunks, whole) < 1e-12
    others = per_example_gradients(model, "mse", *same, chunk_size=5, random_position=(1,))
    assert full_batch.error(others, whole) > 1e-3


def test_batch_normalisation_in_training_mode_is_rejected():
    x = keras.Input((6,))
    model = keras.Model(x, L.BatchNormalization()(L.Dense(4)(x)))
    with pytest.raises(ValueError, match="LayerNormalization or GroupNormalization"):
        per_example_gradients(model, "mse", np.ones((4, 6)), np.ones((4, 4)), chunk_size=2)
