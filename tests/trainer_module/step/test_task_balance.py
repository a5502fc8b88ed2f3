"""Learned weights of several losses, `TrainStep(task_balance=...)`.

Reference: the equations of the classes in NumPy float64, with the gradients of a tape over the
whole batch. Tolerance: 1e-9 after three steps.
"""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import Checkpoints, TrainingLoop, TrainStep, weighted_loss
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.stages.staged_model import StagedModel

RATE = 0.1


def two_outputs(dtype="float64"):
    x = keras.Input((5,), dtype=dtype)
    hidden = keras.layers.Dense(4, activation="tanh")(x)
    return keras.Model(x, {name: keras.layers.Dense(1)(hidden) for name in ("far", "near")})


def make_step(model, strategy=None, *, loss=None, optimizer=None, **options):
    options = {"micro_batch_size": 3, "task_balance": "uncertainty", **options}
    loss = loss or {"far": "mse", "near": "mse"}
    optimizer = optimizer or keras.optimizers.SGD(RATE)
    return TrainStep(model, optimizer, loss, strategy=strategy, **options)


def random_batch(seed=0, *, separate=False):
    """A task with a large loss and one with a small loss, and weights."""
    x, y, w = full_batch.batch("mlp", seed=seed)
    weights = {"far": w, "near": w[::-1].copy()} if separate else w
    return x, {"far": 30 * y, "near": 0.1 * y}, weights


def train_in_numpy(model, batches, balance):
    """Take a step for each batch; returns the weights and the losses that were minimised."""
    weights, losses, first = np.ones(2), [], None
    for x, y, w in batches:
        with tf.GradientTape(persistent=True) as tape:
            outputs = model(x, training=True)
            tasks = []
            for name in ("far", "near"):
                of_task = w[name] if isinstance(w, dict) else w
                squares = (outputs[name] - y[name])[:, 0] ** 2
                tasks.append(tf.reduce_sum(of_task * squares) / of_task.sum())
            total = tf.add_n([k * task for k, task in zip(weights, tasks, strict=True)])
        variables = model.trainable_variables
        shared = [[g.numpy() for g in tape.gradient(task, variables[:2])] for task in tasks]
        for v, g in zip(variables, tape.gradient(total, variables), strict=True):
            v.assign_sub(RATE * g)
        values = np.array([float(task) for task in tasks])
        if balance == "uncertainty":
            losses.append(float(total) - np.log(weights).sum() / 2)
            shares = weights * values
            weights = weights * np.exp(0.02 * (0.5 - shares) / (0.5 + shares))
            continue
        losses.append(float(total))
        norms = weights * [np.sqrt(sum((g**2).sum() for g in each)) for each in shared]
        first = values if first is None else first
        ratios = values / first
        targets = norms.mean() * (ratios / ratios.mean()) ** 1.5
        weights = weights * np.exp(0.02 * (targets - norms) / (targets + norms))
        weights = 2 * weights / weights.sum()
    return weights, losses


@pytest.mark.parametrize(
    ("balance", "separate", "strategy"),
    [
        ("uncertainty", True, "mirrored2"),
        ("gradnorm", False, "mirrored2"),
        ("gradnorm", True, "none"),
    ],
)
def test_equals_numpy(float64, passes_of_one, strategies, balance, separate, strategy):
    """One Σ w for both outputs or separate ones, in ragged micro-batches, on replicas."""
    strategy = strategies[strategy]
    with strategy.scope():
        model = two_outputs()
        step = make_step(model, strategy, task_balance=balance)
    reference = keras.models.clone_model(model)
    reference.set_weights(model.get_weights())
    batches = [random_batch(seed, separate=separate) for seed in range(3)]
    reports = [step(batch) for batch in batches]
    weights, losses = train_in_numpy(reference, batches, balance)
    np.testing.assert_allclose(list(step.task_weights.values()), weights, rtol=1e-9)
    np.testing.assert_allclose([float(r.loss) for r in reports], losses, rtol=1e-9)
    assert full_batch.error(model.get_weights(), reference.get_weights()) < 1e-9


def test_stages_share_the_variables_of_the_first(float64):
    """Reference: the same model on one device."""
    hidden = keras.Input((4,), dtype="float64")
    first = keras.Sequential([keras.Input((5,), dtype="float64"), keras.layers.Dense(4)])
    outputs = {name: keras.layers.Dense(1)(hidden) for name in ("far", "near")}
    parts = [first, keras.Model(hidden, outputs)]
    whole = keras.Model(inputs := keras.Input((5,), dtype="float64"), parts[1](first(inputs)))
    start, found = whole.get_weights(), []
    for model in (whole, StagedModel(parts, devices=["CPU:0", "CPU:1"])):
        whole.set_weights(start)
        step = make_step(model, task_balance="gradnorm")
        step(random_batch())
        found.append(list(step.task_weights.values()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_a_resumed_run_continues_the_weights(float64, tmp_path):
    def trained(epochs, folder):
        keras.utils.set_random_seed(0)
        step = make_step(two_outputs(), task_balance="gradnorm", micro_batch_size=16)
        data = tf.data.Dataset.from_tensors(random_batch())
        checkpoints = Checkpoints(str(folder), step, every_steps=1)
        TrainingLoop(step, data, epochs=epochs, checkpoints=checkpoints).fit()
        return [step.task_weights, *map(np.ndarray.tolist, step.model.get_weights())]

    whole = trained(4, tmp_path / "whole")
    trained(2, tmp_path / "halves")
    assert trained(4, tmp_path / "halves") == whole


def test_a_window_or_a_task_without_weight_does_not_move_its_variance(float64):
    step = make_step(two_outputs())
    x, y, w = random_batch()
    step((x, y, 0 * w))
    assert step.task_weights == {"far": 1.0, "near": 1.0}
    step((x, y, {"far": w, "near": 0 * w}))
    assert step.task_weights["far"] < 1
    assert step.task_weights["near"] == 1


def test_what_cannot_be_balanced_is_rejected():
    with pytest.raises(ValueError, match=r"task_balance.*1 loss"):
        make_step(full_batch.mlp(), loss=weighted_loss("mse"))
    x = keras.Input((5,))
    apart = keras.Model(x, {name: keras.layers.Dense(1)(x) for name in ("far", "near")})
    with pytest.raises(ValueError, match=r"task_balance='gradnorm' .*share no variable"):
        make_step(apart, task_balance="gradnorm")(random_batch())
    with pytest.raises(ValueError, match="task_balance"):
        make_step(two_outputs("float32"), task_balance="equal")
    with pytest.raises(ValueError, match=r"clip_per_example=1.0 with task_balance='uncertainty'"):
        make_step(two_outputs("float32"), clip_per_example=1.0)
    with pytest.raises(ValueError, match=r"task_balance='uncertainty' with parameter servers"):
        ParameterServerStep(
            two_outputs("float32"),
            keras.optimizers.SGD(),
            {"far": "mse", "near": "mse"},
            cluster=None,  # pyright: ignore
            micro_batch_size=4,
            task_balance="uncertainty",
        )
