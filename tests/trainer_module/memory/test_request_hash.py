"""What has the same key, and what has another."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
from pathlib import Path

import keras
import numpy as np
import probe_models
import pytest
import tensorflow as tf

import trainer_module
from trainer_module.losses.weighted_loss import weighted_loss
from trainer_module.memory import request_hash as hashing
from trainer_module.memory.probe import ProbeRequest
from trainer_module.memory.request_hash import request_hash

REQUEST = ProbeRequest(
    build="probe_models.dense",
    arguments=(),
    batch=({"x": np.zeros((2, 3), "float32")}, np.zeros((2, 1), "float32")),
    devices=("CPU:0",),
    counter="resident",
    micro_batch_size=1,
    global_batch_rows=8,
    window_rows=8,
    limit_bytes=None,
    step_options={"jit_compile": False},
    keras_options={"floatx": "float32"},
)


def key(build=probe_models.dense, request=REQUEST, **arguments):
    return request_hash(*build(**arguments), request, build)


def test_the_same_step_has_the_same_key():
    """Keras names the second model's layers dense_2, ...; a learning rate needs no memory."""
    assert key() == key() == key(rate=0.5)
    more_rows = ({"x": np.ones((5, 3), "float32")}, np.ones((5, 1), "float32"))
    assert key() == key(request=dataclasses.replace(REQUEST, batch=more_rows))
    assert key() == key(request=dataclasses.replace(REQUEST, micro_batch_size=4))
    assert key(probe_models.subclassed) == key(probe_models.subclassed)
    assert key(loss=weighted_loss("mse")) == key(loss=weighted_loss("mse"))
    balanced, other = ({0: 1.0, 1: weight} for weight in (2.0, 3.0))
    assert key(loss=weighted_loss("mse", class_weight=balanced)) == key(
        loss=weighted_loss("mse", class_weight=other)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"units": 5},
        {"loss": "mean_absolute_error"},
        {"loss": keras.losses.MeanSquaredError()},
        {"loss": weighted_loss("mse")},
        {"optimizer": keras.optimizers.Adam},
    ],
    ids=["model", "loss name", "loss object", "loss function", "optimizer"],
)
def test_another_step_has_another_key(arguments):
    assert key(**arguments) != key()


def test_another_loss_function_has_another_key():
    """Both are `weighted_loss.<locals>.sums`: the values in the closure distinguish them."""
    assert key(loss=weighted_loss("mse")) != key(loss=weighted_loss("mae"))
    assert key(loss=weighted_loss("mse")) != key(loss=weighted_loss("mse", reduction="mean"))


X, Y = REQUEST.batch[0]["x"], REQUEST.batch[1]


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": ({"x": X.astype("float64")}, Y)},
        {"batch": ({"x": X[:, :2]}, Y)},
        {"batch": ({"z": X}, Y)},
        {"batch": ({"x": X}, Y, np.ones(2, "float32"))},
        {"devices": ("CPU:0", "CPU:1")},
        {"global_batch_rows": 16},
        {"step_options": {"jit_compile": True}},
        {"keras_options": {"floatx": "float32", "dtype_policy": "mixed_bfloat16"}},
    ],
)
def test_other_data_devices_and_options_have_another_key(changed):
    assert key(request=dataclasses.replace(REQUEST, **changed)) != key()


@pytest.mark.parametrize("name", ["XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS"])
def test_what_tensorflow_reads_from_the_environment_counts(monkeypatch, name):
    before = key()
    monkeypatch.setenv(name, "changed")
    assert key() != before


def test_the_threads_of_an_operation_count(monkeypatch):
    before = key()
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 1)
    assert key() != before


def test_edited_code_has_another_key(tmp_path, monkeypatch):
    """A layer of the user's own, whose configuration says nothing of what `call` does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within one second
    source = (
        "import keras\n"
        "class Layer(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return {}\n"
        "def build():\n"
        "    layers = [keras.Input((3,)), Layer(), keras.layers.Dense(1)]\n"
        "    return keras.Sequential(layers), keras.optimizers.SGD(), 'mse'\n"
    )
    keys = []
    for body in ("x", "keras.ops.tanh(x)", "x  # the same"):
        (tmp_path / "edited.py").write_text(source.format(body))
        sys.modules.pop("edited", None)
        keys.append(key(importlib.import_module("edited").build))
    sys.modules.pop("edited")
    assert keys[0] == keys[2] != keys[1]


def test_a_module_without_a_source_counts_by_its_name(monkeypatch):
    made = types.ModuleType("made_at_run_time")
    monkeypatch.setitem(sys.modules, made.__name__, made)

    class Layer(keras.layers.Layer):
        def call(self, x):
            return x

    Layer.__module__ = made.__name__

    def build():
        layers = [keras.Input((3,)), Layer(), keras.layers.Dense(1)]
        return keras.Sequential(layers), keras.optimizers.SGD(), "mse"

    assert key(build) == key(build) != key()


def test_the_code_of_every_room_counts():
    """Since the package has rooms, the files beside the key's own are few of those of a step."""
    package = Path(trainer_module.__file__).parent
    names = {str(file.relative_to(package)) for file in hashing.own_sources()}
    assert {"window/accumulation.py", "step/train_step.py", "memory/probe.py"} <= names
