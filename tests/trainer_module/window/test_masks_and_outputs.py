"""What counts of a batch: masks of losses and models, weights and sums of each output.

Reference: Keras itself, in float64, on the whole batch at once: `compile` and one `train_on_batch`
with SGD. Keras divides by the number of values, as `reduction="mean"` does; where its
`reduction="mean_with_sample_weight"` is the reference, it is named. Tolerance 1e-12 relative.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep, weighted_loss
from trainer_module.loop.evaluation import Evaluation

pytestmark = pytest.mark.usefixtures("float64")

ROWS = 12
RATE = 0.1


def rows(shape=(ROWS, 4), seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def stepped(model, loss, batch, size=5, **options):
    """Loss, and weights after one step of ours; the model is left as it was."""
    step = TrainStep(model, keras.optimizers.SGD(RATE), loss, micro_batch_size=size, **options)
    return take(step, batch)


def take(step, batch):
    before = step.model.get_weights()
    found = float(step(batch).loss), step.model.get_weights()
    step.model.set_weights(before)
    return found


def keras_step(model, loss, batch, **options):
    """The same by Keras."""
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(RATE), loss, run_eagerly=True, **options)
    features, labels, *weights = batch
    loss = np.ravel(model.train_on_batch(features, labels, *weights))[0]
    found = loss, model.get_weights()
    model.set_weights(before)
    return found


def agree(ours, theirs, tolerance=1e-12):
    assert ours[0] == pytest.approx(theirs[0], rel=tolerance)
    assert full_batch.error(ours[1], theirs[1]) < tolerance


def evaluated(model, loss, batch, rows=5):
    data = tf.data.Dataset.from_tensor_slices(batch).batch(rows)
    return Evaluation(model, loss, data)()["loss"]


def ignoring(**options):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=options.pop("ignore_class", -1), **options
    )


# The label of rows that the loss itself leaves out; of rows without weight one is left out too.
IGNORED = {
    -1: np.array([0, -1, 1, 2, -1, -1, 0, 1, 2, 2, -1, 0]),
    0: np.array([1, 0, 1, 2, 0, 0, 2, 1, 2, 2, 0, 1]),
}
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5, 0.0, 1.0, 1.5, 1.0, 0.25, 1.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("ignored", "weights", "reduction", "of_keras"),
    [
        (-1, None, "weighted_mean", "sum_over_batch_size"),
        (0, WEIGHTS, "mean", "sum_over_batch_size"),
        (-1, WEIGHTS, "weighted_mean", "mean_with_sample_weight"),
    ],
)
def test_rows_that_the_loss_ignores_do_not_count(ignored, weights, reduction, of_keras):
    batch = (rows(), IGNORED[ignored], *(() if weights is None else (weights,)))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    loss = weighted_loss(ignoring(ignore_class=ignored), reduction=reduction)
    theirs = keras_step(model, ignoring(ignore_class=ignored, reduction=of_keras), batch)
    agree(stepped(model, loss, batch), theirs)
    assert evaluated(model, loss, batch) == pytest.approx(theirs[0], rel=1e-12)


def test_masks_of_model_and_loss_both_hold():
    """Tokens: padding is left out by the model's mask, and class 2 by the loss."""
    random = np.random.default_rng(0)
    model = full_batch.tokens()
    batch = random.integers(0, 7, (ROWS, 4)), random.integers(0, 7, (ROWS, 4))
    theirs = keras_step(model, ignoring(ignore_class=2), batch)
    agree(stepped(model, weighted_loss(ignoring(ignore_class=2), reduction="mean"), batch), theirs)
    agree(stepped(model, weighted_loss(ignoring(ignore_class=2)), batch), theirs)


def masked_outputs(nested=False) -> keras.Model:
    """Two outputs of tokens, of which only one has a mask, and one of rows."""
    ids = keras.Input((3,), dtype="int64", name="ids")
    x = keras.Input((4,), name="x")
    vectors = keras.layers.Embedding(6, 3, mask_zero=True)(ids)
    hidden = keras.layers.Dense(5, activation="tanh")(x)
    tokens = keras.layers.Dense(6)(vectors)
    plain = keras.layers.Reshape((2, 2))(keras.layers.Dense(4)(hidden))
    row = keras.layers.Dense(1)(hidden)
    outputs = {"row": row, "tokens": tokens, "plain": plain}
    if nested:
        outputs = {"row": row, "deep": [tokens, plain]}
    return keras.Model({"ids": ids, "x": x}, outputs)


def masked_data():
    random = np.random.default_rng(4)
    features = {"ids": random.integers(0, 3, (ROWS, 3)), "x": rows()}
    labels = {
        "row": random.normal(size=(ROWS, 1)),
        "tokens": random.integers(0, 6, (ROWS, 3)),
        "plain": random.normal(size=(ROWS, 2, 2)),
    }
    return features, labels


LOSSES = {"row": "huber", "plain": "mse"}
FACTORS = {"row": 1.0, "tokens": 0.5, "plain": 3.0}


@pytest.mark.parametrize(
    ("order", "weights", "reduction"),
    [
        (("row", "tokens", "plain"), "none", "weighted_mean"),
        (("tokens", "plain", "row"), "one", "mean"),
        (("plain", "tokens", "row"), "each", "weighted_mean"),
    ],
)
def test_each_output_has_its_own_denominator(order, weights, reduction):
    """Where no token counts, that output adds nothing, as in Keras."""
    model = masked_outputs()
    features, labels = masked_data()
    each = {key: np.abs(rows((ROWS,), seed)) for seed, key in enumerate(order)}
    batch = (features, labels)
    if weights != "none":
        batch += ({"one": WEIGHTS, "each": each}[weights],)
    kind = {"mean": "sum_over_batch_size", "weighted_mean": "mean_with_sample_weight"}[reduction]
    tokens = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=kind)
    of_keras = {
        "row": keras.losses.Huber(reduction=kind),
        "plain": keras.losses.MeanSquaredError(reduction=kind),
    }
    ours = {**LOSSES, "tokens": tokens}
    loss = weighted_loss(
        {key: ours[key] for key in order}, loss_weights=FACTORS, reduction=reduction
    )
    if weights != "none" and reduction == "weighted_mean":
        # Keras sums weights [rows] and multiplies by them per token: its divisor lacks the tokens.
        theirs = by_hand(model, features, labels, batch[2])
    else:
        # It wants an axis for the tokens, too.
        of_tokens = [batch[2].reshape(-1, 1)] if weights == "one" else []
        theirs = keras_step(
            model, {**of_keras, "tokens": tokens}, (*batch[:2], *of_tokens), loss_weights=FACTORS
        )
    step = TrainStep(model, keras.optimizers.SGD(RATE), loss, micro_batch_size=5)
    agree(take(step, batch), theirs, 1e-11)
    if weights == "none":
        no_tokens = {**features, "ids": np.zeros_like(features["ids"])}, labels
        theirs = keras_step(model, {**of_keras, "tokens": tokens}, no_tokens, loss_weights=FACTORS)
        agree(take(step, no_tokens), theirs, 1e-11)
    if weights == "each":
        assert evaluated(model, loss, batch) == pytest.approx(theirs[0], rel=1e-11)


def by_hand(model, features, labels, weights=None, factors=FACTORS, flat=lambda out: out):
    """Σ over outputs of factor · Σ w l / Σ w in plain TensorFlow, and one step of SGD."""
    with tf.GradientTape() as tape:
        out = flat(model(features))
        of_tokens = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["tokens"], out["tokens"])
        values = {
            "row": keras.losses.huber(labels["row"], out["row"]),
            "tokens": of_tokens,
            "plain": tf.reduce_mean((labels["plain"] - out["plain"]) ** 2, -1),
        }
        total = 0.0
        for key, factor in factors.items():
            value = values[key]
            w = np.ones(ROWS) if weights is None else weights[key]
            w = tf.reshape(w, [-1] + [1] * (len(value.shape) - 1))
            w = w * tf.ones_like(value)
            if key == "tokens":
                w *= tf.cast(features["ids"] > 0, w.dtype)
            total += factor * tf.reduce_sum(w * value) / tf.reduce_sum(w)
    variables = [v.value for v in model.trainable_variables]
    slopes = tape.gradient(total, variables, unconnected_gradients="zero")
    return float(total), [
        v.numpy() - RATE * tf.convert_to_tensor(g).numpy()
        for v, g in zip(variables, slopes, strict=True)
    ]


def test_on_replicas_in_a_loop(strategies):
    """Reference: plain TensorFlow on one device, all rows at once."""
    features, labels = masked_data()
    batch = features, labels, {key: np.abs(rows((ROWS,), 3)) for key in labels}
    loss = weighted_loss({**LOSSES, "tokens": ignoring()}, loss_weights=FACTORS)
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = masked_outputs(), keras.optimizers.SGD(RATE)
    theirs = by_hand(model, *batch)
    step = TrainStep(model, optimizer, loss, micro_batch_size=4, strategy=strategy)
    report = step.run(iter(tf.data.Dataset.from_tensors(batch)), 1)
    agree((report.loss, model.get_weights()), theirs, 1e-11)


def test_outputs_within_outputs():
    """Also one without a loss. Reference: plain TensorFlow, all rows at once."""
    features, flat = masked_data()
    model = masked_outputs(nested=True)
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = weighted_loss(
        {"deep": [classes, "mse"], "row": None}, loss_weights={"deep": [0.5, 3.0], "row": 7.0}
    )
    labels = {"row": flat["row"], "deep": [flat["tokens"], flat["plain"]]}
    theirs = by_hand(
        model,
        features,
        flat,
        factors={"tokens": 0.5, "plain": 3.0},
        flat=lambda out: {"tokens": out["deep"][0], "plain": out["deep"][1], "row": out["row"]},
    )
    agree(stepped(model, loss, (features, labels)), theirs)


@pytest.mark.parametrize(
    ("kind", "weights"), [("sparse", WEIGHTS), ("one_hot", None), ("binary", WEIGHTS)]
)
def test_class_weights_are_those_of_fit(kind, weights):
    """Reference: Keras' train_on_batch with class_weight, or with both multiplied by hand."""
    units = 1 if kind == "binary" else 3
    classes = np.arange(ROWS) % (2 if kind == "binary" else 3)
    of_class = {0: 0.5, 1: 4.0}
    labels = {
        "sparse": classes,
        "one_hot": np.eye(3)[classes],
        "binary": classes.astype("float64").reshape(-1, 1),
    }[kind]
    loss = {
        "sparse": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "one_hot": keras.losses.CategoricalCrossentropy(from_logits=True),
        "binary": keras.losses.BinaryCrossentropy(from_logits=True),
    }[kind]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units)])
    ours = weighted_loss(loss, reduction="mean", class_weight=of_class)
    batch = (rows(), labels, *(() if weights is None else (weights,)))
    by_hand = np.array([of_class.get(c, 1.0) for c in classes])
    by_hand = by_hand if weights is None else by_hand * weights
    agree(stepped(model, ours, batch), keras_step(model, loss, (rows(), labels, by_hand)))
    if kind == "sparse":  # Evaluation knows none of classes, as in Keras
        plain = weighted_loss(loss, reduction="mean")
        assert evaluated(model, ours, batch) == evaluated(model, plain, batch)


def test_invalid_class_weights_are_rejected():
    for options, message in [
        ({"loss": ["mse", "mse"], "class_weight": {0: 2.0}}, "class_weight=.* of 2 outputs"),
        ({"loss": "mse", "class_weight": {-1: 2.0}}, r"class_weight={-1: 2.0}: give classes 0, 1"),
        ({"loss": "mse", "class_weight": {0: -2.0}}, "finite weights of at least 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            weighted_loss(**options)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_class_that_is_not_a_number_stops_with_and_without_xla(jit_compile):
    labels = (np.arange(ROWS) % 3).astype("float64")
    labels[4] = np.nan
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    loss = weighted_loss(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = model.get_weights()
    with pytest.raises((ValueError, ArithmeticError), match=r"label is not a number|labels"):
        stepped(model, loss, (rows(), labels), jit_compile=jit_compile)
    np.testing.assert_equal(model.get_weights(), before)
