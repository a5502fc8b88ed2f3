"""Gradients per task. Reference: one GradientTape per loss in float64. Tolerance: 1e-9."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import task_gradients, weighted_loss

CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def tapes(model, features, labels, weights):
    """The loss of each output, and its gradients."""
    found = {}
    for name in ("p", "q"):
        with tf.GradientTape() as tape:
            outputs = model(features)[name]
            if name == "p":
                rows = tf.reduce_mean((outputs - labels["p"]) ** 2, -1)
            else:
                target = labels["q"][:, 0]
                rows = tf.nn.sparse_softmax_cross_entropy_with_logits(target, outputs)
            loss = tf.reduce_sum(weights[name] * rows) / tf.reduce_sum(weights[name])
        variables = [v.value for v in model.trainable_variables]
        zero = tf.UnconnectedGradients.ZERO
        found[name] = loss, tape.gradient(loss, variables, unconnected_gradients=zero)
    return found


@pytest.mark.parametrize(("micro_batch_size", "separate"), [(3, False), (3, True), (64, True)])
def test_they_are_those_of_a_tape_per_loss(float64, micro_batch_size, separate):
    model = full_batch.two_in_two_out()
    features, labels, weights = full_batch.batch("two_in_two_out")
    both = {"p": weights, "q": weights[::-1].copy() if separate else weights}
    wanted = tapes(model, features, labels, both)
    found = task_gradients(
        model,
        {"p": "mse", "q": CLASSES},
        features,
        labels,
        both if separate else weights,
        micro_batch_size=micro_batch_size,
    )
    flat = {}
    for name, (loss, gradients) in wanted.items():
        np.testing.assert_allclose(found.losses[name], loss, rtol=1e-9)
        assert full_batch.error(found.gradients[name], gradients) < 1e-9
        flat[name] = np.concatenate([np.ravel(g) for g in gradients])
        np.testing.assert_allclose(found.norms[name], np.linalg.norm(flat[name]), rtol=1e-9)
    cosine = flat["p"] @ flat["q"] / np.prod([np.linalg.norm(each) for each in flat.values()])
    np.testing.assert_allclose(found.cosines, [[1, cosine], [cosine, 1]], rtol=1e-9)


def test_replicas_have_the_gradients_of_all_rows(float64, strategies):
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model = full_batch.two_in_two_out()
    features, labels, weights = full_batch.batch("two_in_two_out", rows=8)
    losses = weighted_loss({"p": "mse", "q": CLASSES}, loss_weights={"p": 1.0, "q": 0.5})
    wanted = task_gradients(model, losses, features, labels, weights, micro_batch_size=8)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels, weights)).batch(8)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))

    @tf.function(autograph=False)
    def on_replicas(*batch):
        def run(*parts):
            return task_gradients(model, losses, *parts, micro_batch_size=3)

        return strategy.run(run, args=batch)

    found = on_replicas(*batch)
    for mine, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        for local in strategy.experimental_local_results(mine):
            np.testing.assert_allclose(local, theirs, rtol=1e-9, atol=1e-12)


def test_one_loss_is_no_choice():
    with pytest.raises(ValueError, match=r"losses='mse' has 1 loss: give one for each"):
        task_gradients(full_batch.mlp(), "mse", *full_batch.batch("mlp"), micro_batch_size=2)
