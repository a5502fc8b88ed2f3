"""Variables on servers, and the optimizer on them, in one process: tests/distributed has servers.

Reference: the optimizer's own `apply`; equal to 1e-6.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import ParameterServerStep
from trainer_module.parameter_server.server_variables import ServerVariables


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


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Ftrl", "Lamb"])
def test_updates_are_those_of_the_optimizer(strategies, name):
    model, optimizer = built(name)
    there = ServerVariables(model, optimizer, strategies["one_device"])
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
    there = ServerVariables(model, optimizer, strategies["one_device"])
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
            ServerVariables(model, optimizer, strategies["one_device"])
