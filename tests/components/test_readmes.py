"""The READMEs' programs that only build nodes, behind nodes of which nothing runs."""

from __future__ import annotations

import re

import pytest
import tensorflow_model_analysis as tfma
from command_line import ROOT
from tfx import v1 as tfx


@pytest.mark.parametrize(
    "folder",
    [
        *("components/blessed_models", "components/column_evaluation", "components/transform"),
        *("components/evaluator_metrics", "transform"),
    ],
)
def test_the_readmes_code_runs(folder, nodes):
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert programs
    trainer = tfx.components.Trainer(
        run_fn="trainer_module.run_fn",
        examples=nodes["transform"].outputs["transformed_examples"],
        transform_graph=nodes["transform"].outputs["transform_graph"],
    )
    scope = {**nodes, "trainer": trainer, "eval_config": tfma.EvalConfig()}
    for program in programs:
        exec(program, scope)
