"""Tests on a real GPU (`make test-gpu`): cut into three logical ones, since most machines have one.

They are left out of `make test`. Without a GPU they fail and do not skip: who asks for them wants
to know what the GPU does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import pytest
import tensorflow as tf

TESTS = Path(__file__).resolve().parents[1]
# The matrix and its helpers (cells, full_batch) are those of the CPU's tests.
MODULES = (TESTS / "support", TESTS / "trainer_module" / "support", TESTS.parent)

REPLICAS = 3
MEGABYTES_EACH = 4096


@pytest.fixture(scope="session", autouse=True)
def gpu():
    """The first GPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        pytest.fail("TensorFlow sees no GPU: see 'On a GPU' in CONTRIBUTING.md.", pytrace=False)
    return gpus[0]


@pytest.fixture(scope="session")
def strategies(gpu):
    """Strategies by the names that the matrix uses; each replica is a logical GPU."""
    # TF32 has 10 bits of a float32's 23, for Keras and the reference alike: exactness is asked of
    # what is float32.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    each = tf.config.LogicalDeviceConfiguration(memory_limit=MEGABYTES_EACH)
    tf.config.set_logical_device_configuration(gpu, [each] * REPLICAS)
    names = [f"GPU:{index}" for index in range(REPLICAS)]
    return {
        "none": tf.distribute.get_strategy(),
        "one_device": tf.distribute.OneDeviceStrategy("GPU:0"),
        "mirrored2": tf.distribute.MirroredStrategy(names[:2]),
        # Not by collectives: TensorFlow numbers the groups of both strategies 1.
        "mirrored3": tf.distribute.MirroredStrategy(
            names, cross_device_ops=tf.distribute.ReductionToOneDevice()
        ),
    }


@pytest.fixture(scope="session")
def in_own_process():
    """Returns a function that runs a program and returns the JSON that it printed last.

    TensorFlow decides once per process how it takes a GPU's memory.
    """

    def run(folder, program, *arguments):
        path = os.pathsep.join([str(folder), *map(str, MODULES), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(0)
