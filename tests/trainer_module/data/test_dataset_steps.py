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


@pytest.mark.slow
def test_the_same_program_has_the_same_identity_and_another_value_another(elsewhere):
    for name in CASES:
        here = identity(CASES[name](1.0))
        assert identity(CASES[name](1.0)) == here
        assert identity(CASES[name](2.0)) != here
        assert elsewhere[name] == here


def test_what_no_process_can_compare_does_not_count():
    """Generators of Python, tables, the state of random numbers."""

    def generated(value):
        spec = tf.TensorSpec([], tf.int64)
        return tf.data.Dataset.from_generator(lambda: iter([int(value)]), output_signature=spec)

    def table(value):
        entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, value])
        held = tf.lookup.StaticHashTable(entries, -1.0)
        return numbers().map(lambda x: x - held.lookup(tf.constant("a")))

    def drawn(value):
        layer = keras.layers.RandomFlip(seed=int(value))
        generator = tf.random.Generator.from_seed(int(value))
        images = numbers().map(lambda x: layer(tf.fill([1, 4, 4, 3], x)))
        return images.map(lambda x: x + generator.uniform([]))

    for make in (generated, table, drawn):
        assert identity(make(1.0)) == identity(make(2.0))


@pytest.mark.parametrize("size", [3, 4])
def test_files_are_their_names_and_sizes(tmp_path, size):
    for folder, text in (("one", b"abc"), ("two", b"abcd"[:size])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.csv").write_bytes(text)
    one, two = (
        dataset_fingerprint(tf.data.TextLineDataset(str(tmp_path / folder / "rows.csv")))
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
    assert identity(slow) == identity(fast)
