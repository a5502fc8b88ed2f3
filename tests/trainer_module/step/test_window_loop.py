"""Batches of many shapes: traced a few times, then never again, with the same result."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import tensorflow as tf

from trainer_module import TrainStep
from trainer_module.step.window_loop import _MOST_SHAPES, StepFunctions
from trainer_module.window import accumulation


def test_many_shapes_are_a_few_traces_and_one_warning(caplog):
    """The largest of each row, against NumPy; then another axis differs too."""
    traced = []

    def window(batch):
        traced.append([None if t is None else t.shape.as_list() for t in batch])
        return tf.reduce_max(batch[0]) + tf.reduce_sum(batch[1])

    functions = StepFunctions(window)
    for rows, length in [(2, n) for n in range(3, 33)] + [(5, 7), (5, 40), (0, 41)]:
        features = np.arange(1.0, 1 + rows * length).reshape(rows, length)
        found = functions((features, np.zeros([rows, 1]), None))
        assert float(found) == (rows * length or -np.inf)
    assert len(traced) == _MOST_SHAPES + 3  # for a length, for all lengths, for all rows
    assert traced[-1] == [[None, None], [None, 1], None]
    messages = [record.getMessage() for record in caplog.records]
    (message,) = [text for text in messages if text.startswith("The rows")]  # TensorFlow warns too
    assert f"have had {_MOST_SHAPES + 1} shapes" in message
    assert "(11,), (1,)" in message
    assert "Pad the rows to a few lengths" in message
    # Another axis differs later, and weights have a separate function.
    for _ in range(2):
        functions((np.ones([2, 50]), np.ones([2, 2]), None))
        functions((np.ones([2, 50]), np.ones([2, 1]), np.ones([2])))
    assert traced[-2:] == [
        [[None, None], [None, None], None],
        [[2, 50], [2, 1], [2]],
    ]


def test_a_step_on_a_shape_of_the_shared_trace_is_the_same(float64, monkeypatch):
    """Sequences of 3, 4 and 5 tokens, of which one shape has a separate trace.

    Reference: full_batch.train. Tolerance: 1e-12.
    """
    monkeypatch.setattr("trainer_module.step.window_loop._MOST_SHAPES", 1)
    model, alone = full_batch.tokens(time=None), full_batch.tokens(time=None)
    alone.set_weights(model.get_weights())
    loss = full_batch.loss_for("tokens")
    step = TrainStep(model, keras.optimizers.SGD(0.1), loss, micro_batch_size=2)
    batches = []
    for length in (3, 4, 5):
        ids = np.random.default_rng(length).integers(0, 7, [5, length])
        step((ids, ids))
        batches.append((ids, ids, None))
    expected, _ = full_batch.train(alone, keras.optimizers.SGD(0.1), "tokens", batches)
    assert full_batch.error(model.get_weights(), expected) < 1e-12


def test_longer_rows_of_a_later_batch_keep_to_the_memory_of_a_pass(monkeypatch):
    """Rows of 4 tokens go together; of 2,048, no two micro-batches; later lengths share a trace.

    Reference: 64 KiB of hidden values per token and micro-batch, against passes of 128 MiB.
    """
    plans = []
    plan_passes = accumulation.plan_passes

    def planned(size, **options):
        plans.append((size, plan_passes(size, **options)))
        return plans[-1][1]

    monkeypatch.setattr(accumulation, "plan_passes", planned)
    monkeypatch.setattr("trainer_module.step.window_loop._MOST_SHAPES", 2)
    tokens = keras.Input((None, 1))
    hidden = keras.layers.Dense(4096, "relu")(tokens)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(tokens, keras.layers.Dense(1)(pooled))
    step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=4)
    # No rows: traced for rows of that length, and nothing to compute.
    few, one = (4, 2), (1, 1)
    for rows, length, together in [(8, 4, few), (0, 2048, one), (0, 5, few), (0, 6, one)]:
        step((tf.ones([rows, length, 1]), tf.ones([rows, 1])))
        assert plans[-1][1] == together
    assert len(plans) == 4
    assert plans[1][0] >= 2048 * 4 * 4096 * 4
    assert plans[3][0] == plans[1][0]
