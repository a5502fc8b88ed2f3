"""A custom training step on several replicas.

Reference: full_batch.train, float64. Tolerance: 1e-12 of each variable's largest value.
"""

from __future__ import annotations

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients, apply_gradients, mean_gradients, sum_over_replicas
from trainer_module.window.gradient_sum import buckets

pytestmark = pytest.mark.usefixtures("passes_of_one")


@pytest.mark.parametrize("name", ["one_device", "mirrored2"])
def test_a_custom_step_on_several_replicas(float64, strategies, name):
    """Also what Keras' own apply makes of the same g: as many times as there are replicas."""
    strategy = strategies[name]
    features, labels, weights = full_batch.batch("regularised", 12)

    def build():
        keras.utils.set_random_seed(1)
        model, optimizer = full_batch.MODELS["regularised"](), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    def apply_by_keras(optimizer, gradients, variables):
        optimizer.apply(gradients, variables)

    expected, _ = full_batch.train(*build(), "regularised", [(features, labels, weights)])
    first = build()[0].get_weights()
    for apply in (apply_gradients, apply_by_keras):
        with strategy.scope():
            model, optimizer = build()

        def replica(features, labels, weights, model=model, optimizer=optimizer, apply=apply):
            total = accumulate_gradients(
                model, "mse", features, labels, weights, micro_batch_size=3
            )
            loss, gradients = mean_gradients(sum_over_replicas(total), model)
            apply(optimizer, gradients, model.trainable_variables)
            return loss

        def part(tensor):
            count = strategy.num_replicas_in_sync
            return strategy.experimental_distribute_values_from_function(
                lambda context, x=tensor: tf.constant(x[context.replica_id_in_sync_group :: count])
            )

        tf.function(strategy.run, autograph=False)(
            replica, args=tuple(map(part, (features, labels, weights)))
        )
        moved = [w - f for w, f in zip(model.get_weights(), first, strict=True)]
        wanted = [w - f for w, f in zip(expected, first, strict=True)]
        times = 1 if apply is apply_gradients else strategy.num_replicas_in_sync
        assert full_batch.error(moved, [times * w for w in wanted]) < 1e-12
        assert "_all_reduce_sum_gradients" not in vars(optimizer)


def test_sums_over_replicas_are_taken_on_replicas(strategies):
    with (
        strategies["mirrored2"].scope(),
        pytest.raises(ValueError, match=r"cross-replica context: .*strategy.run"),
    ):
        sum_over_replicas(None)  # pyright: ignore


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_sums_of_several_calls_know_what_their_added_losses_are(float64, kind):
    """Two calls, of 4 and 7 rows. Reference: a GradientTape over all rows, 1e-12."""

    class Adding(keras.layers.Layer):
        def call(self, x):
            self.add_loss(getattr(keras.ops, kind)(x**2))
            return x

    model = keras.Sequential(
        [keras.Input((5,), dtype="float64"), keras.layers.Dense(2), Adding(), keras.layers.Dense(1)]
    )
    features, labels, _ = map(tf.constant, full_batch.batch("mlp"))
    parts = [
        accumulate_gradients(
            model, "mse", features[rows], labels[rows], micro_batch_size=2, added_losses=kind
        )
        for rows in (slice(0, 4), slice(4, 11))
    ]
    loss, gradients = mean_gradients(parts[0] + parts[1], model)
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        wanted = tf.add_n([tf.reduce_mean((outputs - labels) ** 2), *model.losses])
    expected = tape.gradient(wanted, [v.value for v in model.trainable_variables])
    assert full_batch.error([loss], [wanted]) < 1e-12
    assert full_batch.error(gradients, expected) < 1e-12


def test_tensors_of_each_collective():
    """Small tensors of a dtype up to 4 MiB; what is 1 MiB or more, or of unknown size, alone."""
    small, large = tf.zeros([1000]), tf.zeros([1 << 18])
    most = tf.zeros([(1 << 18) - 1])
    assert buckets([small, large, small, tf.zeros([3], tf.float64), small]) == [[0, 2, 4], [1], [3]]
    assert buckets([most] * 9) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert buckets([]) == []

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def unknown(tensor):
        assert buckets([tensor, small]) == [[0], [1]]

    unknown.get_concrete_function()
