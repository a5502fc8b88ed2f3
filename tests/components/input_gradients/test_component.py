"""The InputGradients node: what it hands to the executor, and what it rejects."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from components import Attributions, InputGradients

README = Path(__file__).resolve().parents[3] / "components" / "input_gradients" / "README.md"


def test_the_readmes_graph_has_a_trainer_that_exports_the_signature(nodes):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[0]
    scope = dict(nodes)
    exec(code, scope)
    trainer, node = scope["trainer"], scope["gradients"]
    assert json.loads(trainer.exec_properties["custom_config"])["input_gradients"] is True
    assert node.outputs["attributions"].type is Attributions
    assert node.exec_properties["rows"] == 2000


def test_parameters_are_checked_while_the_graph_is_built(nodes):
    channels = (nodes["transform"].outputs["transformed_examples"], None)
    for change, message in (
        ({"rows": 0}, r"rows=0.*1 to 20,000"),
        ({"steps": True}, "steps=True"),
    ):
        with pytest.raises(ValueError, match=message):
            InputGradients(*channels, **change)
