"""A network of keras.applications behind augmentation, by `model_fn`; the example `finetune`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest
from killed_loop import EndsAt

from trainer_module import Checkpoints, TrainerConfig, TrainingLoop, TrainStep
from trainer_module.model.model_context import ModelContext
from trainer_module.model.plan import resolve

RANDOM = np.random.default_rng(0)
PHOTOS = {"photo": RANDOM.integers(0, 256, (24, 32, 32, 3)).astype("uint8")}
LABELS = np.arange(24) % 3


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The first layers of MobileNetV2 with random weights."""
    whole = keras.applications.MobileNetV2((32, 32, 3), include_top=False, weights=None)
    network = keras.Model(whole.input, whole.get_layer("expanded_conv_project_BN").output)
    path = tmp_path_factory.mktemp("network") / "network.keras"
    network.save(path)
    return str(path)


def loop(file, batch_norm, folder, *callbacks, seed=0):
    """A training of three epochs of three steps, and its model."""
    keras.utils.set_random_seed(seed)
    config = TrainerConfig.parse(
        {
            "model_fn": "user_model.application",
            "model": {"options": {"file": file}},
            "batch_norm": batch_norm,
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
        }
    )
    context = ModelContext({}, None, None, "y", "multiclass", 3, {}, config)
    plan = resolve(config, label_kind="multiclass")
    model, optimizer, loss = plan.build(context, total_steps=9)
    step = TrainStep(model, optimizer, loss, micro_batch_size=3, **plan.step_options)
    saved = Checkpoints(str(folder), step, every_steps=2)
    training = TrainingLoop(
        step, (PHOTOS, LABELS), batch_size=8, epochs=3, callbacks=callbacks, checkpoints=saved,
        steps_per_loop=1, progress=False,
    )  # fmt: skip
    return training, model


def statistics(model):
    return [w.numpy() for w in model.weights if w.name.startswith("moving")]


@pytest.mark.slow(8)
@pytest.mark.parametrize("batch_norm", ["ghost", "frozen"])
def test_a_network_from_a_file_trains_and_resumes(file, batch_norm, tmp_path, warnings):
    """With `ghost`, after a kill in the fifth step, bit for bit as without one."""
    training, model = loop(file, batch_norm, tmp_path / "whole")
    before = statistics(model)
    training.fit()
    assert not [line for line in warnings if "not checked" in line]
    is_said = any("the update depends on micro_batch_size" in line for line in warnings)
    assert is_said == (batch_norm == "ghost")
    changed = [np.any(a != b) for a, b in zip(statistics(model), before, strict=True)]
    assert all(changed) if batch_norm == "ghost" else not any(changed)
    if batch_norm == "frozen":
        return
    with pytest.raises(KeyboardInterrupt):
        loop(file, batch_norm, tmp_path / "killed", EndsAt(5))[0].fit()
    again, resumed = loop(file, batch_norm, tmp_path / "killed", seed=7)
    again.fit()
    for value, other in zip(resumed.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(value, other)
    np.testing.assert_array_equal(model.predict(PHOTOS), resumed.predict(PHOTOS))


@pytest.mark.slow
def test_the_example_trains_both_ways(tmp_path, monkeypatch):
    path = Path(__file__).parents[3] / "examples/finetune/finetune.py"
    spec = importlib.util.spec_from_file_location("finetune", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    accuracy = example.main(tmp_path / "network.keras", rows=128, epochs=3)
    assert list(accuracy) == ["ghost", "frozen"]
    assert all(0 < value <= 1 for value in accuracy.values())
