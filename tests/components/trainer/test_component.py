"""The Trainer and Tuner nodes: what they hand on, and what they refuse while the graph is built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tfx import v1 as tfx

from components import create_trainer, create_tuner
from trainer_module import TrainerConfig, TunerConfig

README = Path(__file__).resolve().parents[3] / "components" / "trainer" / "README.md"
(README_CODE,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_configuration_reaches_run_fn(channels):
    config = TrainerConfig(global_batch_size=64, micro_batch_size=16, epochs=2)
    trainer = create_trainer(**channels, config=config, code="abc")
    assert isinstance(trainer, tfx.components.Trainer)
    assert trainer.exec_properties["run_fn"] == "trainer_module.run_fn"
    handed = json.loads(trainer.exec_properties["custom_config"])
    assert TrainerConfig.model_validate(handed["trainer"]) == config
    assert handed["code"] == "abc"
    assert not {"baselines", "reading"} & set(handed)
    more = {"baselines": "test", "reading": {"csv": {"missing": [""]}}}
    trainer = create_trainer(**channels, config=config, **more)
    assert more.items() <= json.loads(trainer.exec_properties["custom_config"]).items()


def test_a_wrong_configuration_is_refused_while_the_graph_is_built(channels):
    with pytest.raises(ValueError, match="micro_batch_size"):
        create_trainer(
            **channels,
            config={"global_batch_size": 16, "micro_batch_size": 32, "epochs": 1},
        )


TRAINER = TrainerConfig(global_batch_size=64, micro_batch_size=16, epochs=2)
TUNER = TunerConfig.parse(
    {"search": {"clip_norm": {"values": [None, 1.0]}, "seed": {"min": 1, "max": 5}}, "trials": 3}
)


def handed(node):
    return json.loads(node.exec_properties["custom_config"])


def test_the_configurations_reach_tuner_fn(channels):
    tuner = create_tuner(**channels, trainer=TRAINER, config=TUNER, code="abc")
    assert isinstance(tuner, tfx.components.Tuner)
    assert tuner.exec_properties["tuner_fn"] == "trainer_module.tuner_fn"
    assert TrainerConfig.parse(handed(tuner)["trainer"]) == TRAINER
    assert TunerConfig.parse(handed(tuner)["tuner"]) == TUNER
    assert handed(tuner)["code"] == "abc"


def test_what_does_not_fit_is_refused_while_the_graph_is_built(channels):
    search = {"micro_batch_size": {"values": [16, 128]}}
    with pytest.raises(ValueError, match="micro_batch_size=128 exceeds global_batch_size=64"):
        create_tuner(**channels, trainer=TRAINER, config={"search": search})


def test_the_readmes_code_builds_both_nodes(nodes):
    scope = {**nodes}
    exec(README_CODE, scope)
    tuner, trainer = scope["tuner"], scope["trainer"]
    assert TunerConfig.parse(handed(tuner)["tuner"]).search["optimizer.learning_rate"]
    trained = TrainerConfig.parse(handed(trainer)["trainer"])
    assert TrainerConfig.parse(handed(tuner)["trainer"]) == trained
    assert trained.label == "tips"
    assert trainer.inputs["hyperparameters"] is tuner.outputs["best_hyperparameters"]


def test_a_trainer_without_a_tuner_has_no_hyperparameters(channels):
    assert "hyperparameters" not in create_trainer(**channels, config=TRAINER).inputs
