"""The graph with and without a search; nothing of it runs."""

from __future__ import annotations

import json

import pytest

from pipeline import create_pipeline, load_config

TUNING = {"search": {"optimizer.learning_rate": {"values": [0.1, 0.01]}}, "trials": 2}


@pytest.fixture
def nodes(write):
    """Nodes by name, of the small pipeline changed by a function."""

    def build(change=lambda config: None):
        return {node.id: node for node in create_pipeline(load_config(write(change))).components}

    return build


def handed(node):
    return json.loads(node.exec_properties["custom_config"])


def test_the_tuner_stands_between_transform_and_trainer(nodes):
    assert "Tuner" not in nodes()
    found = nodes(lambda c: c.update(tuning=TUNING))
    tuner, trainer = found["Tuner"], found["Trainer"]
    assert list(found).index("Tuner") + 1 == list(found).index("Trainer")
    assert trainer.inputs["hyperparameters"] is tuner.outputs["best_hyperparameters"]
    assert found["NormalizationValidator"] in tuner.upstream_nodes
    assert tuner.inputs["examples"] is found["Transform"].outputs["transformed_examples"]
    assert handed(tuner)["trainer"] == handed(trainer)["trainer"]
    assert handed(tuner)["tuner"] == TUNING


def test_the_cache_sees_the_code_of_every_function_that_may_be_tried(nodes, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    search = {"model_fn": {"values": ["searched_models.one", "searched_models.two"]}}

    def code(text):
        (tmp_path / "searched_models.py").write_text(text)
        return handed(nodes(lambda c: c.update(tuning={"search": search}))["Tuner"])["code"]

    assert code("ONE = 1") == code("ONE = 1") != code("ONE = 2")
