"""Micro-batches that one pass takes: how many, and that the sums stay the same."""

from __future__ import annotations

import math

import full_batch
import keras
import pytest
import tensorflow as tf

from trainer_module import accumulate_gradients, weighted_loss
from trainer_module.window import accumulation, trace
from trainer_module.window import spec as passes
from trainer_module.window.describe import describe
from trainer_module.window.spec import Batch, WindowSpec

MIB = 2**20


def bytes_per_row(model: keras.Model) -> float:
    batch = Batch(tf.zeros([2, *model.input_shape[1:]]), tf.zeros([2, 1]))
    return describe(WindowSpec(model, weighted_loss("mse")), batch).bytes_per_row


def test_small_micro_batches_are_taken_together_and_large_ones_are_not():
    """With loops, and on a GPU, more of them, in one pass at a time."""
    for size, options, expected in [
        (0, {}, (1, 1)),
        (16 * MIB, {}, (4, 2)),
        (17 * MIB, {}, (2, 2)),
        (33 * MIB, {}, (1, 2)),
        (65 * MIB, {}, (1, 1)),
        (math.inf, {}, (1, 1)),
        (17 * MIB, {"merge_micro_batches": False}, (1, 2)),
        (1, {"has_loops": True}, (32, 1)),
        (8 * MIB, {"has_loops": True}, (16, 1)),
        (math.inf, {"has_loops": True}, (1, 1)),
        (8 * MIB, {"kind": "GPU"}, (32, 1)),
        (9 * MIB, {"kind": "GPU"}, (16, 1)),
        (129 * MIB, {"kind": "GPU"}, (1, 1)),
    ]:
        assert passes.plan_passes(size, **options) == expected


def test_a_row_of_a_dense_model_takes_what_its_tensors_say():
    """At least features, both layers' outputs and the hidden gradient; at most 40 such rows."""
    least = 4 * (5 + 6 + 1 + 6)
    assert least <= bytes_per_row(full_batch.mlp()) <= 40 * least


def test_a_recurrent_layer_has_the_size_of_what_its_steps_keep():
    """At least 8 tensors of 4 units, for each step."""

    def size(steps):
        recurrent = keras.layers.LSTM(4, use_cudnn=False)
        return bytes_per_row(
            keras.Sequential([keras.Input((steps, 8)), recurrent, keras.layers.Dense(1)])
        )

    six, twelve, eighteen = size(6), size(12), size(18)
    assert 6 * 8 * 4 * 4 <= six <= 40 * 6 * 8 * 4 * 4
    assert twelve - six == pytest.approx(eighteen - twelve)
    assert twelve - six >= 6 * 8 * 4 * 4


class Doubling(keras.layers.Layer):
    """Doubles until a row is large: as often as the data says."""

    def call(self, x):
        return tf.while_loop(lambda x: tf.reduce_max(x) < 8, lambda x: [x * 2], [x])[0]


def test_a_loop_of_unknown_length_has_no_size():
    layers = [keras.layers.Dense(4), Doubling(), keras.layers.Dense(1)]
    traced = tf.function(keras.Sequential([keras.Input((8,)), *layers]), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec([None, 8])).graph
    assert trace.bytes_per_row(graph) == math.inf


def test_a_function_inside_the_model_has_its_size():
    """What is not inlined, such as a layer's own tf.function, and branches."""

    def inner(x):
        return tf.reduce_sum(tf.exp(tf.tile(x, [1, 100])), 1)

    spec = tf.TensorSpec([None, 8])
    for outer in (
        lambda x: tf.function(inner, autograph=False)(x),
        lambda x: tf.cond(x[0, 0] > 0, lambda: inner(x), lambda: x[:, 0]),
    ):
        graph = tf.function(outer, autograph=False).get_concrete_function(spec).graph
        assert trace.bytes_per_row(graph) >= 2 * 4 * 800


def limit_passes(monkeypatch, **changed):
    monkeypatch.setitem(passes.LIMITS, "CPU", passes.LIMITS["CPU"]._replace(**changed))


def traced(micro_batch_size, *, known=True, **options):
    """Return the sums over 23 rows, the rows of the passes, and how many each loop has at once.

    Whether the number of rows is known while the graph is traced is the caller's choice.
    """
    keras.utils.set_random_seed(0)
    model = full_batch.mlp()
    features = tf.random.stateless_normal([23, 5], [1, 2], dtype=tf.float64)
    rows = []

    def loss(labels, outputs, sample_weight):
        rows.append(outputs.shape[0])
        return weighted_loss("mse")(labels, outputs, sample_weight)

    @tf.function(autograph=False)
    def sums(features, labels):
        return accumulate_gradients(
            model, loss, features, labels, micro_batch_size=micro_batch_size, **options
        )

    labels = tf.ones([23, 1], tf.float64)
    shapes = [
        tf.TensorSpec([23 if known else None, *tensor.shape[1:]], tensor.dtype)
        for tensor in (features, labels)
    ]
    function = sums.get_concrete_function(*shapes)
    loops = [op for op in function.graph.get_operations() if "While" in op.type]
    at_once = sorted(op.get_attr("parallel_iterations") for op in loops)
    return function(features, labels), set(rows), at_once


def test_a_pass_takes_that_many_micro_batches_and_the_sums_are_the_same(monkeypatch, float64):
    """Reference: all rows in one pass; 23 rows in micro-batches of 5; 1e-12 of the largest."""
    expected, _, _ = traced(23)
    for per_pass in (1, 2, 4):
        limit_passes(monkeypatch, micro_batches=per_pass)
        found, rows, _ = traced(5)
        # Full passes, and the short last one; 1, 3 and 4 rows are those of made-up batches.
        assert rows - {1, 3, 4} == {5 * per_pass, None}
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            assert one is other is None or full_batch.error([one], [other]) < 1e-12


def test_the_passes_are_those_of_the_replicas_device(monkeypatch, float64):
    monkeypatch.setattr(accumulation, "replica_kind", lambda strategy: "GPU")
    _, rows, loops = traced(2, known=False)
    assert 2 * passes.LIMITS["GPU"].micro_batches in rows
    assert loops == [1]


def test_parallel_passes_have_the_same_sums_bit_for_bit(monkeypatch, float64):
    """Reference: one after the other, bit for bit; 23 rows in passes of 4."""
    limit_passes(monkeypatch, micro_batches=1, parallel_passes=1)
    expected, _, one_by_one = traced(4)
    limit_passes(monkeypatch, parallel_passes=2)
    found, _, loops = traced(4)
    assert (one_by_one, loops) == ([1], [2])
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert one is other is None or tf.reduce_all(one == other)


def test_a_window_that_is_one_pass_by_its_shape_or_as_expected_is_no_loop(float64):
    """Reference: rows that nobody knows before; 23 rows; 1e-12 of the largest."""
    expected, _, loops = traced(23, known=False)
    assert len(loops) == 1
    for found, _, none in (traced(23), traced(23, known=False, expected_rows=23)):
        assert none == []
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            assert one is other is None or full_batch.error([one], [other]) < 1e-12


def test_only_a_window_of_one_pass_skips_the_loops(monkeypatch):
    """A larger one would not fit into memory, and the mean over no rows is not a number."""
    limit_passes(monkeypatch, micro_batches=1, parallel_passes=1)
    inputs = keras.Input((5,))
    outputs = keras.layers.Dense(1)(inputs)
    model = keras.Model(inputs, MeanLoss()(outputs))
    seen = []

    def record(labels):
        seen.append(len(labels))
        return labels

    def loss(labels, outputs, sample_weight):
        recorded = tf.numpy_function(record, [labels], tf.float32)
        return weighted_loss("mse")(tf.ensure_shape(recorded, labels.shape), outputs, sample_weight)

    specs = [tf.TensorSpec([None, 5]), tf.TensorSpec([None, 1])]

    @tf.function(input_signature=specs, autograph=False)
    def sums(features, labels):
        return accumulate_gradients(
            model, loss, features, labels, micro_batch_size=5, expected_rows=4
        )

    traced = sums.get_concrete_function()
    for rows, passes_of in ((0, []), (4, [4]), (5, [5]), (12, [2, 5, 5])):
        seen.clear()
        total = traced(tf.ones([rows, 5]), tf.ones([rows, 1]))
        assert sorted(seen) == passes_of
        present = [tensor for tensor in tf.nest.flatten(total) if tensor is not None]
        assert all(bool(tf.reduce_all(tf.math.is_finite(tensor))) for tensor in present)


class MeanLoss(keras.layers.Layer):
    """Adds the mean of its inputs to the loss."""

    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs))
        return inputs
