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


@pytest.mark.parametrize("number", [0, 1])
def test_the_readmes_code_builds_the_node(nodes, number):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[number]
    scope = dict(nodes)
    exec(code, scope)
    handed = json.loads(scope["trainer"].exec_properties["custom_config"])
    assert TrainerConfig.model_validate(handed["trainer"]).label == "tips"
