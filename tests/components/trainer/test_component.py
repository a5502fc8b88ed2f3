"""The Trainer node: what it hands to run_fn, and what it refuses while the graph is built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tfx import v1 as tfx

from components import create_trainer
from trainer_module.config import TrainerConfig

README = Path(__file__).resolve().parents[3] / "components" / "trainer" / "README.md"


@pytest.fixture
def nodes():
    examples = tfx.components.CsvExampleGen(input_base="rows")
    statistics_gen = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema_gen = tfx.components.SchemaGen(statistics=statistics_gen.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema_gen.outputs["schema"],
        preprocessing_fn="transform.preprocessing_fn",
    )
    return {"schema_gen": schema_gen, "transform": transform, "tfx": tfx}


def channels(nodes):
    return {
        "examples": nodes["transform"].outputs["transformed_examples"],
        "transform_graph": nodes["transform"].outputs["transform_graph"],
        "schema": nodes["schema_gen"].outputs["schema"],
    }


def test_the_configuration_reaches_run_fn(nodes):
    config = TrainerConfig(global_batch_size=64, micro_batch_size=16, epochs=2)
    trainer = create_trainer(**channels(nodes), config=config, code="abc")
    assert isinstance(trainer, tfx.components.Trainer)
    assert trainer.exec_properties["run_fn"] == "trainer_module.run_fn"
    handed = json.loads(trainer.exec_properties["custom_config"])
    assert TrainerConfig.model_validate(handed["trainer"]) == config
    assert handed["code"] == "abc"


def test_a_wrong_configuration_is_refused_while_the_graph_is_built(nodes):
    with pytest.raises(ValueError, match="micro_batch_size"):
        create_trainer(
            **channels(nodes),
            config={"global_batch_size": 16, "micro_batch_size": 32, "epochs": 1},
        )


@pytest.mark.parametrize("number", [0, 1])
def test_the_readmes_code_builds_the_node(nodes, number):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[number]
    scope = dict(nodes)
    exec(code, scope)
    handed = json.loads(scope["trainer"].exec_properties["custom_config"])
    assert TrainerConfig.model_validate(handed["trainer"]).label == "tips"
