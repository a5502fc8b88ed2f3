"""What a dataset's functions hold is part of its identity, the same in each process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import captured_cases
import keras
import numpy as np
import pytest
import tensorflow as tf
from captured_cases import CASES, identity, numbers

from trainer_module.common.fingerprint import array_digest
from trainer_module.data.captured import captured_facts
from trainer_module.data.dataset_steps import dataset_facts

EARLIER = {
    "elements": "TensorSpec(shape=(None, 2), dtype=tf.float32, name=None)",
    "0 TensorSlice": "float32[4] 4c9c4f354e74153d",
    "1 Map": "function 4a31604c04f95a6d",
    "2 Shuffle": "3 0 1",
    "3 Batch": "2 False",
}


@pytest.fixture(scope="module")
def elsewhere():
    """Identities of all cases in another process."""
    done = subprocess.run(
        [sys.executable, captured_cases.__file__, "1.0"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "PYTHONHASHSEED": "7",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_the_same_program_has_the_same_identity_and_another_value_another(name, elsewhere):
    here = identity(CASES[name](1.0))
    assert identity(CASES[name](1.0)) == here
    assert identity(CASES[name](2.0)) != here
    assert elsewhere[name] == here


@pytest.mark.parametrize("name", ["variable", "static_table", "normalization", "large_constant"])
def test_every_captured_value_is_read(name):
    _, unreadable = captured_facts(CASES[name](1.0))
    assert unreadable == set()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (
            lambda: tf.data.Dataset.from_generator(
                lambda: range(3), output_signature=tf.TensorSpec([], tf.int64)
            ),
            "a Python generator",
        ),
        (
            lambda: numbers().map(lambda x: tf.py_function(abs, [x], tf.float32)),
            "a Python function (EagerPyFunc)",
        ),
        (
            lambda: numbers().map(lambda x: tf.numpy_function(abs, [x], tf.float32)),
            "a Python function (PyFunc)",
        ),
        (
            lambda: tf.data.Dataset.range(2).flat_map(
                lambda i: numbers().map(lambda x: tf.py_function(abs, [x], tf.float32))
            ),
            "a Python function (EagerPyFunc)",
        ),
    ],
)
def test_python_functions_are_named_and_keep_the_identity(make, what):
    facts, unreadable = captured_facts(make())
    assert unreadable == {what}
    assert captured_facts(make())[0] == facts


def test_random_state_is_no_identity_and_is_named():
    """Layers without a seed have another one in each process."""
    identities = []
    for seed in (1, 2):
        layer = keras.layers.RandomFlip(seed=seed)
        generator = tf.random.Generator.from_seed(seed)
        images = numbers().map(lambda x, layer=layer: layer(tf.fill([1, 4, 4, 3], x)))
        drawn = images.map(lambda x, g=generator: x + g.uniform([]))
        facts, unreadable = captured_facts(drawn)
        assert unreadable == {"random numbers with a state"}
        identities.append(facts)
    assert identities[0] == identities[1]


def test_variables_that_a_checkpoint_restores_do_not_count():
    layer = keras.layers.Dense(1)
    layer.build((None, 1))
    dataset = numbers().map(lambda x: layer(tf.reshape(x, [1, 1])))
    before, _ = captured_facts(dataset, restored=layer.variables)
    layer.kernel.assign(layer.kernel + 1)
    assert captured_facts(dataset, restored=layer.variables)[0] == before
    assert captured_facts(dataset)[0] != before


def test_a_table_is_its_content_in_any_order():
    def looked_up(keys):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
        for key in keys:
            table.insert(tf.constant(key, tf.int64), tf.constant(2 * key, tf.int64))
        return numbers().map(lambda x: table.lookup(tf.cast(x, tf.int64)))

    there, back = (captured_facts(looked_up(keys))[0] for keys in (range(50), range(49, -1, -1)))
    assert there == back


def test_options_of_speed_do_not_affect_the_identity():
    mean = tf.constant(captured_cases.many(1.0))
    slow = numbers().map(lambda x: x - mean)
    fast = numbers().map(lambda x: x - mean, num_parallel_calls=3).prefetch(2)
    assert captured_facts(slow)[0] == captured_facts(fast)[0]


def test_saved_data_may_be_moved_and_saved_again(tmp_path):
    found = []
    for name in ("one", "two"):
        tf.data.Dataset.from_tensor_slices(captured_cases.many(1.0)).save(str(tmp_path / name))
        found.append(captured_facts(tf.data.Dataset.load(str(tmp_path / name)))[0])
    assert found[0] == found[1]


def test_facts_of_earlier_checkpoints_stay():
    """Written down from the version before captured values counted."""
    mean = tf.constant([1.0, 2.0])
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(4, dtype="float32"))
    dataset = dataset.map(lambda x: x - mean).shuffle(3, seed=1).batch(2)
    assert dataset_facts(dataset) == EARLIER


@pytest.mark.parametrize("dtype", [object, str])
def test_texts_that_are_cut_elsewhere_have_another_digest(dtype):
    one, other = (np.array(each, dtype) for each in (["a\0", "b"], ["a", "\0b"]))
    assert array_digest(one) == array_digest(one.copy())
    assert array_digest(one) != array_digest(other)


def test_a_large_array_is_hashed_and_not_stored():
    """100 MB. A bound of 10 s says only that nothing is done per element."""
    held = tf.constant(np.ones(25_000_000, "float32"))
    started = time.perf_counter()
    facts, unreadable = captured_facts(numbers().map(lambda x: x + held[0]))
    assert time.perf_counter() - started < 10
    assert len(json.dumps(facts)) < 500
    assert unreadable == set()
