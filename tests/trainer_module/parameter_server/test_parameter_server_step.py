"""Variables on servers, and windows against TrainStep, with a worker and a server in one process.

References: the optimizer's own `apply`, to 1e-6; TrainStep on the same batches, to 2e-6 of each
variable's largest value, since one worker takes one window at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import ParameterServerStep
from trainer_module.parameter_server.parameter_server_step import _ServerVariables


def built(name, **options):
    model = full_batch.mlp()
    optimizer = getattr(keras.optimizers, name)(
        keras.optimizers.schedules.PolynomialDecay(0.1, 5), **options
    )
    optimizer.build(model.trainable_variables)
    return model, optimizer


def gradients(model, seed):
    random = np.random.default_rng(seed)
    return [tf.constant(random.normal(size=v.shape), "float32") for v in model.trainable_variables]


def test_updates_are_those_of_the_optimizer(strategies):
    for name in ["SGD", "AdamW", "Ftrl", "Lamb"]:
        model, optimizer = built(name)
        there = _ServerVariables(model, optimizer, strategies["one_device"])
        expected, whole = built(name)
        expected.set_weights(model.get_weights())
        for number in range(3):
            there.apply(gradients(model, number), tf.constant(number, tf.int64))
            whole.apply(gradients(model, number), expected.trainable_variables)
        there.pull()
        optimizer.iterations.assign(3)  # the chief's part
        assert full_batch.error(model.get_weights(), expected.get_weights()) < 1e-6
        found = zip(optimizer.variables, whole.variables, strict=True)
        for ours, theirs in found:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)
        assert int(there.optimizer.iterations.numpy()) == 0, "nobody counts on the servers"


def test_values_travel_from_the_chief_to_the_servers_and_back(strategies):
    model, optimizer = built("Adam")
    there = _ServerVariables(model, optimizer, strategies["one_device"])
    restored = [np.full(v.shape, 2.0, "float32") for v in model.variables]
    model.set_weights(restored)
    momentum = next(v for v in optimizer.variables if "momentum" in v.path)
    momentum.assign(tf.ones_like(momentum) * 3)
    there.push()
    for variable in (*model.variables, momentum):
        variable.assign(tf.zeros_like(variable))
    there.pull()
    np.testing.assert_array_equal(model.get_weights()[0], restored[0])
    np.testing.assert_array_equal(momentum.numpy(), 3)


def test_what_has_no_meaning_without_an_order_of_steps_is_refused():
    for options, message in [
        ({"batch_norm": "ghost"}, "batch_norm='ghost' with parameter servers"),
        ({"ema_momentum": 0.9}, r"ema_momentum=0.9 with parameter servers.*leave it out"),
        ({"micro_batch_size": 0}, r"micro_batch_size=0: use a whole number of at least 1"),
    ]:
        model, optimizer = built("SGD")
        with pytest.raises(ValueError, match=message):
            ParameterServerStep(
                model, optimizer, "mse", **{"micro_batch_size": 1, "cluster": None, **options}
            )


def test_optimizers_that_cannot_work_there_are_refused(strategies):
    for name, message in [
        ("AdamW", "leave exclude_from_weight_decay out"),
        ("Nadam", r"Nadam.*product over steps.*use Adam or AdamW"),
    ]:
        model = full_batch.mlp()
        optimizer = getattr(keras.optimizers, name)(0.1)
        if name == "AdamW":
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        optimizer.build(model.trainable_variables)
        with pytest.raises(ValueError, match=message):
            _ServerVariables(model, optimizer, strategies["one_device"])


PROGRAM = """
import json, os, socket
import keras, numpy as np, tensorflow as tf
from trainer_module import (
    ParameterServerStep, ScaledLearningRate, TrainStep, per_example_gradients,
)
from trainer_module.step.reports import Step

def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"

tasks = {"worker": [free()], "ps": [free()], "chief": [free()]}
spec = tf.train.ClusterSpec({k: v for k, v in tasks.items() if k != "chief"})
servers = [tf.distribute.Server(spec, job_name=k, task_index=0, protocol="grpc")
           for k in ("worker", "ps")]
os.environ["TF_CONFIG"] = json.dumps({"cluster": tasks, "task": {"type": "chief", "index": 0}})
cluster = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
)

def pull(gradients, variables, step):
    share = 0.1 / (1.0 + tf.cast(step, tf.float32))
    return [g + share * v.value for g, v in zip(gradients, variables, strict=True)]

def made():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((5,)),
        keras.layers.Dense(16, activation="tanh", kernel_regularizer="l2"),
        keras.layers.Dropout(0.2, seed=1),
        keras.layers.Dense(1),
    ])
    return model, keras.optimizers.AdamW(ScaledLearningRate(0.02, {0: 6, 2: 12}, "linear"))

def batches():
    random = np.random.default_rng(0)
    for rows in (12, 7, 11, 1):
        x = random.normal(size=(rows, 5)).astype("float32")
        yield x, x.sum(1, keepdims=True), random.uniform(size=rows).astype("float32")

specs = tuple(tf.TensorSpec([None, *axes], tf.float32) for axes in ((5,), (1,), ()))
data = tf.data.Dataset.from_generator(batches, output_signature=specs)
options = {"micro_batch_size": 4, "clip_norm": 0.5, "transforms": [pull]}
step = ParameterServerStep(*made(), "mse", cluster=cluster, **options)
alone = TrainStep(*made(), "mse", **options)
ours, theirs = iter(data), iter(data)
for _ in range(4):
    found, expected = step.run(ours, 1), alone.run(theirs, 1)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-5)

def error(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)

def row_gradients(model):
    x, y, w = (tf.constant(part) for part in next(batches()))
    return tf.function(
        lambda: per_example_gradients(model, "mse", x, y, w, chunk_size=5), autograph=False
    )

coordinator = tf.distribute.coordinator.ClusterCoordinator(cluster)
on_worker = coordinator.schedule(row_gradients(step.model))
coordinator.join()
found = {"chief": row_gradients(step.model)(), "worker": on_worker.fetch()}
expected = [g.numpy() for g in row_gradients(alone.model)()]
print(json.dumps({
    "error": error(step.model.get_weights(), alone.model.get_weights()),
    "row_errors": {k: error([np.asarray(g) for g in v], expected) for k, v in found.items()},
    "steps": [int(step.step.numpy()), int(alone.step.numpy())],
    "are_steps": [isinstance(step, Step), isinstance(alone, Step)],
    "state": [len(step.state()), len(alone.state())],
}), flush=True)
os._exit(0)  # the servers have no end
"""


@pytest.mark.slow(9)
def test_windows_and_transforms_are_those_of_one_process():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["error"] < 2e-6
    assert set(found["row_errors"]) == {"chief", "worker"}  # where the gradients are computed
    assert max(found["row_errors"].values()) < 1e-5
    assert found["steps"] == [4, 4]
    assert found["are_steps"] == [True, True]
    assert found["state"] == [4, 4]
