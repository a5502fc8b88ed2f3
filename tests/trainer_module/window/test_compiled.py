"""Windows that XLA compiles: which ones are, how often, and what they refuse."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import TrainStep
from trainer_module.step.reports import NonFiniteError
from trainer_module.window.spec import Batch, even_size, part_of_rows

layers = keras.layers


def recurrent(*, length=6):
    return keras.Sequential([keras.Input((length, 3)), layers.SimpleRNN(2), layers.Dense(1)])


def rows_of(count, *shape):
    return np.ones((count, *shape), "float32"), np.ones((count, 1), "float32")


def compiled(model, batch, **options):
    step = TrainStep(model, keras.optimizers.SGD(0.1), "mse", micro_batch_size=4, **options)
    step(batch)
    return step.is_compiled


def texts():
    inputs = keras.Input((1,), dtype="string", name="zone")
    ids = layers.StringLookup(vocabulary=["a", "b"])(inputs)
    outputs = layers.Dense(1)(layers.SimpleRNN(2)(layers.Embedding(3, 2)(ids)))
    return keras.Model({"zone": inputs}, outputs)


class Printed(layers.Layer):
    """Calls an operation that XLA does not have."""

    def call(self, x):
        return x + tf.strings.to_number(tf.strings.as_string(x * 0))


def test_the_log_says_what_is_compiled_or_why_it_is_not(caplog):
    caplog.set_level(logging.INFO, "absl")
    printed = keras.Sequential([keras.Input((6, 3)), layers.SimpleRNN(1), Printed()])
    recurrent_rows = rows_of(4, 6, 3)
    for model, batch, options, is_compiled, log in [
        (full_batch.mlp(), rows_of(4, 5), {}, False, ""),
        (full_batch.mlp(), rows_of(4, 5), {"jit_compile": True}, True, "compiled with XLA (CPU)"),
        (printed, recurrent_rows, {}, False, "without XLA: XLA does not support AsString."),
        (
            texts(),
            ({"zone": np.array([["a"], ["b"]], object)}, np.ones((2, 1), "float32")),
            {},
            False,
            "without XLA: feature 'zone' is text",
        ),
    ]:
        caplog.clear()
        assert compiled(model, batch, **options) is is_compiled
        logged = [record.getMessage() for record in caplog.records if "XLA" in record.getMessage()]
        assert len(logged) == bool(log)
        assert all(line.startswith(f"step: {log}") for line in logged)
    clipping = TrainStep(
        recurrent(), keras.optimizers.SGD(0.1), "mse", micro_batch_size=4, clip_per_example=1.0
    )
    assert not clipping._setup.describe(Batch(*map(tf.constant, recurrent_rows))).is_compiled


def test_auto_compiles_recurrent_models_on_a_cpu(strategies, float64, caplog):
    """With parallel passes and a shorter one. Reference: full_batch.train. Tolerance: 1e-12."""
    caplog.set_level(logging.INFO, "absl")
    strategy = strategies["mirrored2"]
    with strategy.scope():
        model, optimizer = recurrent(), keras.optimizers.SGD(0.1)
    expected = recurrent()
    expected.set_weights(model.get_weights())
    options = {"strategy": strategy, "micro_batch_size": 2, "clip_norm": 0.1}
    step = TrainStep(model, optimizer, "mse", **options)
    batches = []
    for rows in (23, 8):
        x = np.random.default_rng(rows).normal(size=(rows, 6, 3))
        batches.append((x, x[:, 0, :1], None))
        step((x, x[:, 0, :1]))
    assert step.is_compiled
    assert caplog.text.count("step: compiled with XLA (CPU, recurrent layers)") == 1
    assert step._setup.passes(Batch(*map(tf.constant, batches[0][:2]))).parallel == 2
    found = full_batch.train(expected, keras.optimizers.SGD(0.1), "mlp", batches, clip_norm=0.1)
    assert full_batch.error(model.get_weights(), found[0]) < 1e-12


def test_rows_of_different_lengths_are_not_compiled_by_auto(caplog):
    caplog.set_level(logging.INFO, "absl")
    step = TrainStep(recurrent(length=None), keras.optimizers.SGD(), "mse", micro_batch_size=4)
    batches = tf.data.Dataset.from_generator(
        lambda: (rows_of(5, length, 3) for length in (4, 7)),
        output_signature=(tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, 1])),
    )
    assert step.run(iter(batches), 2).steps == 2
    assert not step.is_compiled
    assert "axes of the rows differ in size" in caplog.text


_EPOCHS = """
import pathlib, sys
import numpy as np, keras, tensorflow as tf
from trainer_module import TrainStep, TrainingLoop
x, y = np.ones((744, 5), "float32"), np.ones((744, 1), "float32")
for expected in (None, 160):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    options = {"micro_batch_size": 4, "jit_compile": True, "expected_rows": expected}
    step = TrainStep(model, keras.optimizers.SGD(), "mse", **options)
    TrainingLoop(step, (x, y), batch_size=160, epochs=3, progress=False).fit()
    modules = pathlib.Path(sys.argv[1]).glob("*before_optimizations.txt")
    print(sum("take" in path.name for path in modules))
"""


def test_epochs_with_a_ragged_end_need_few_compilations(tmp_path):
    """Windows of 160, 160, 160, 160 and 104 rows, three times: 5 passes of 32, or 3 and 8 rows.

    Without the expected number of rows: 40 and 26 passes of 4, in rows for 64 and 32.
    """
    environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={tmp_path}"}
    counts = subprocess.check_output([sys.executable, "-c", _EPOCHS, tmp_path], env=environment)
    assert counts.split() == [b"2", b"3"]


def test_passes_divide_a_window_evenly():
    for rows, most, size in [
        (20, 32, 20),
        (32, 8, 8),
        (1000, 512, 500),
        (96, 32, 32),
        (90, 32, 30),
        (1009, 256, 256),  # a prime number
        (5, 4, 4),
        (1, 1, 1),
    ]:
        assert even_size(rows, most) == size


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_id_that_no_table_has_stops_the_training(jit_compile):
    """Without XLA, TensorFlow raises an error. Keras counts negative ids from the end."""
    table = layers.Embedding(10, 2)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), table, layers.Flatten()])
    model.add(layers.Dense(1))
    step = TrainStep(
        model, keras.optimizers.SGD(), "mse", micro_batch_size=2, jit_compile=jit_compile
    )
    ids, labels = np.tile(np.array([[0, 9, -10]], "int32"), (4, 1)), np.ones((4, 1), "float32")
    assert step((ids, labels)).applied
    for wrong in (10, -11):
        before = model.get_weights()
        bad = ids.copy()
        bad[2, 1] = wrong
        error = NonFiniteError if jit_compile else ValueError
        with pytest.raises(error, match=r"ids? "):
            step((bad, labels))
        for one, other in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_xla_reads_a_pass_without_a_copy_of_the_window():
    rows = np.arange(24.0, dtype="float32").reshape(6, 2, 2)
    part = tf.function(lambda rows, index: part_of_rows(rows, index, 2), jit_compile=True)
    np.testing.assert_array_equal(part(rows, tf.constant(2)), rows[4:])
    operations = part.experimental_get_compiler_ir(tf.constant(rows), tf.constant(2))(stage="hlo")
    assert "gather(" in operations  # of a slice, XLA makes a dynamic one only after padding
    assert "pad(" not in operations
