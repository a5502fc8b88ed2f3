"""A dataset's identity: what its functions hold is a part, the same in each process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dataset_cases
import keras
import numpy as np
import pytest
import tensorflow as tf
from dataset_cases import CASES, identity, numbers

from trainer_module.common.fingerprint import array_digest
from trainer_module.data.dataset_steps import dataset_fingerprint


@pytest.fixture(scope="module")
def elsewhere():
    """Identities of all cases in another process."""
    done = subprocess.run(
        [sys.executable, "-c", "import dataset_cases; dataset_cases.main(1.0)"],
        env={
            **os.environ,
            "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{Path(dataset_cases.__file__).parent}",
            "PYTHONHASHSEED": "7",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_same_program_has_the_same_identity_and_another_value_another(elsewhere):
    for name in CASES:
        here = identity(CASES[name](1.0))
        assert identity(CASES[name](1.0)) == here
        assert identity(CASES[name](2.0)) != here
        assert elsewhere[name] == here


def test_python_functions_are_named_and_keep_the_identity():
    for make, what in [
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
    ]:
        facts, unreadable = dataset_fingerprint(make())
        assert unreadable == {what}
        assert dataset_fingerprint(make())[0] == facts


def test_random_state_is_no_identity_and_is_named():
    """Layers without a seed have another one in each process."""
    identities = []
    for seed in (1, 2):
        layer = keras.layers.RandomFlip(seed=seed)
        generator = tf.random.Generator.from_seed(seed)
        images = numbers().map(lambda x, layer=layer: layer(tf.fill([1, 4, 4, 3], x)))
        drawn = images.map(lambda x, g=generator: x + g.uniform([]))
        facts, unreadable = dataset_fingerprint(drawn)
        assert unreadable == {"random numbers with a state"}
        identities.append(facts)
    assert identities[0] == identities[1]


def test_variables_that_a_checkpoint_restores_do_not_count():
    layer = keras.layers.Dense(1)
    layer.build((None, 1))
    dataset = numbers().map(lambda x: layer(tf.reshape(x, [1, 1])))
    before, _ = dataset_fingerprint(dataset, restored=layer.variables)
    layer.kernel.assign(layer.kernel + 1)
    assert dataset_fingerprint(dataset, restored=layer.variables)[0] == before
    assert dataset_fingerprint(dataset)[0] != before


def test_saved_data_may_be_moved_and_saved_again(tmp_path):
    found = []
    for name in ("one", "two"):
        tf.data.Dataset.from_tensor_slices(dataset_cases.many(1.0)).save(str(tmp_path / name))
        found.append(dataset_fingerprint(tf.data.Dataset.load(str(tmp_path / name)))[0])
    assert found[0] == found[1]


def table():
    entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
    held = tf.lookup.StaticHashTable(entries, -1.0)
    return numbers().map(lambda x: x - held.lookup(tf.constant("a")))


def inner_dataset():
    other = numbers()
    return tf.data.Dataset.range(3).flat_map(lambda i: other.take(i))


def ragged_rows():
    return tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1.0, 2.0], [3.0]]))


def test_values_that_cannot_be_read_are_named():
    for make, what in [
        (table, "a lookup table"),
        (inner_dataset, "a dataset, ragged or sparse tensor"),
        (ragged_rows, "a dataset, ragged or sparse tensor"),
    ]:
        assert dataset_fingerprint(make())[1] == {what}


@pytest.mark.parametrize("size", [3, 4])
def test_files_are_their_names_and_sizes(tmp_path, size):
    for folder, text in (("one", b"abc"), ("two", b"abcd"[:size])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.csv").write_bytes(text)
    one, two = (
        dataset_fingerprint(tf.data.TextLineDataset(str(tmp_path / folder / "rows.csv")))[0]
        for folder in ("one", "two")
    )
    assert (one == two) == (size == 3)


def test_texts_that_are_cut_elsewhere_have_another_digest():
    for dtype in [object, str]:
        one, other = (np.array(each, dtype) for each in (["a\0", "b"], ["a", "\0b"]))
        assert array_digest(one) == array_digest(one.copy())
        assert array_digest(one) != array_digest(other)


def test_options_of_speed_do_not_affect_the_identity():
    mean = tf.constant(dataset_cases.many(1.0))
    slow = numbers().map(lambda x: x - mean)
    fast = numbers().map(lambda x: x - mean, num_parallel_calls=3).prefetch(2)
    assert dataset_fingerprint(slow)[0] == dataset_fingerprint(fast)[0]
