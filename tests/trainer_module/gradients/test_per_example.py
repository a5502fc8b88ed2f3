"""Gradients row by row. Reference: a GradientTape per row in float64. Tolerance: 1e-12."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import tensorflow as tf

from trainer_module import (
    StagedModel,
    clipped_gradient_sum,
    input_gradients,
    per_example_gradients,
    split_model,
)

MOMENT = {"reduce": lambda row: [tf.square(g) for g in row], "over_rows": "mean"}


def row_by_row(model, kind, features, labels, weights):
    rows = []
    for i in range(len(weights)):
        with tf.GradientTape() as tape:
            outputs = model(features[i : i + 1], training=True)
            loss = weights[i] * tf.reduce_mean((outputs - labels[i : i + 1]) ** 2)
        slopes = tape.gradient(loss, [v.value for v in model.trainable_variables])
        rows.append([tf.convert_to_tensor(s).numpy() for s in slopes])
    return [np.stack(x) for x in zip(*rows, strict=True)]


def test_reductions(float64):
    model = full_batch.mlp()
    data = full_batch.batch("mlp")
    rows = row_by_row(model, "mlp", *data)
    flat = np.concatenate([g.reshape(len(g), -1) for g in rows], 1)
    wanted = {
        "norm": np.sqrt((flat**2).sum(1)),
        "sum": [g.sum(0) for g in rows],
        "moment": [(g**2).mean(0) for g in rows],
    }
    reductions = {
        "norm": {"reduce": tf.linalg.global_norm},
        "sum": {"over_rows": "sum"},
        "moment": MOMENT,
    }

    def reduced(*data, **options):
        return {
            name: per_example_gradients(model, "mse", *data, **reduction, **options)
            for name, reduction in reductions.items()
        }

    tensors = [tf.constant(x) for x in data]
    in_graph = tf.function(reduced, autograph=False)
    for found in (in_graph(*tensors, chunk_size=3), reduced(*data, chunk_size="auto")):
        for name, value in wanted.items():
            assert full_batch.error(tf.nest.flatten(found[name]), tf.nest.flatten(value)) < 1e-12


def test_rows_are_those_of_each_replica_and_sums_those_of_all(float64, strategies):
    """11 rows on 2 replicas."""
    data = full_batch.batch("mlp")

    def compute(model, *data):
        options = {"chunk_size": 3}
        return per_example_gradients(model, "mse", *data, **options), [
            *per_example_gradients(model, "mse", *data, **options, **MOMENT),
            *clipped_gradient_sum(model, "mse", *data, **options, clip_norm=0.5),
        ]

    def built():
        keras.utils.set_random_seed(0)
        return full_batch.mlp()

    whole = built()
    rows, sums = tf.function(lambda *data: compute(whole, *data), autograph=False)(
        *map(tf.constant, data)
    )
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model = built()
    parts = [np.array_split(x, 2) for x in data]
    values = [
        strategy.experimental_distribute_values_from_function(
            lambda context, part=part: tf.constant(part[context.replica_id_in_sync_group])
        )
        for part in parts
    ]
    local = strategy.experimental_local_results
    found_rows, found_sums = tf.function(
        lambda *data: strategy.run(lambda *data: compute(model, *data), args=data), autograph=False
    )(*values)
    together = [np.concatenate(local(each)) for each in found_rows]
    assert full_batch.error(together, rows) < 1e-12
    for each, wanted in zip(found_sums, sums, strict=True):
        assert full_batch.error(local(each), [wanted] * 2) < 1e-12


def test_stages_have_the_gradients_of_the_whole_model(float64):
    model = full_batch.layer_norm()
    data = full_batch.batch("layer_norm")
    parts = split_model(model, [model.layers[1].name])
    staged = StagedModel(parts, devices=["CPU:0", "CPU:1"])

    @tf.function(autograph=False)
    def both(*data):
        return [per_example_gradients(each, "mse", *data, chunk_size=3) for each in (model, staged)]

    wanted, found = both(*map(tf.constant, data))
    assert full_batch.error(found, wanted) < 1e-12


def test_input_gradients_are_those_of_the_whole_batch(float64):
    for chunk_size in [1, 4, 64]:
        model = full_batch.two_in_two_out()
        features, _, _ = full_batch.batch("two_in_two_out")
        tensors = {name: tf.constant(x) for name, x in features.items()}
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(model(tensors)["q"][:, 1])
        wanted = tape.gradient(total, tensors)
        found = input_gradients(
            model, features, chunk_size=chunk_size, output=lambda outputs: outputs["q"][:, 1]
        )
        assert set(found) == {"a", "b"}
        assert full_batch.error([found["a"], found["b"]], [wanted["a"], wanted["b"]]) < 1e-12


def test_sums_over_rows_of_a_bfloat16_model_are_in_float32():
    """In bfloat16, a sum of ones one by one stays at 256."""
    with full_batch.precision("bfloat16"):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    data = np.ones((300, 1), "float32"), np.zeros((300, 1), "float32")
    ones = {"reduce": lambda gradients: [tf.ones_like(g) for g in gradients], "over_rows": "sum"}
    # With autograph, as in a user's function; in the other tests it would take seconds.
    (total,) = tf.function(per_example_gradients)(
        model, "mse", *map(tf.constant, data), chunk_size=1, **ones
    )
    assert total.dtype == tf.float32
    np.testing.assert_array_equal(total, [[300.0]])
