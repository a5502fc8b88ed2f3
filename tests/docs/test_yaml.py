"""Sections of the YAML on the pages are valid; calls of platforms have arguments that exist."""

from __future__ import annotations

import ast
import inspect
import re

import pytest
import yaml
from command_line import ROOT
from pydantic import TypeAdapter

from pipeline.config.config import PipelineConfig

FIELDS = {field.alias or name: field for name, field in PipelineConfig.model_fields.items()}
REQUIRED = {"image": "name:1.0", "pipeline_root": "gs://bucket/root"}  # of a target


def sections() -> list[tuple[str, str]]:
    """(page, block) of each block with sections of the YAML."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("components/*/*.md")]
    return [
        (str(page.relative_to(ROOT)), block)
        for page in sorted(pages)
        for block in re.findall(
            r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
        )
        if not block.startswith("apiVersion")
        and isinstance(value := yaml.safe_load(block), dict)
        and value.keys() <= FIELDS.keys()
    ]


@pytest.mark.parametrize(("page", "block"), sections())
def test_the_sections_of_a_page_are_valid(page, block):
    for name, value in yaml.safe_load(block).items():
        if name == "cluster":
            value = {target: {**REQUIRED, **profile} for target, profile in value.items()}
        TypeAdapter(FIELDS[name].annotation).validate_python(value)


def test_many_pages_have_such_blocks():
    assert len({page for page, _ in sections()}) > 10


def test_schedules_are_created_with_arguments_that_the_clients_take():
    import kfp
    from google.cloud import aiplatform

    page = (ROOT / "docs" / "daily-runs.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    takes = {
        "init": inspect.signature(aiplatform.init),
        "Client": inspect.signature(kfp.Client),
        "get_experiment": inspect.signature(kfp.Client.get_experiment),
        "create_recurring_run": inspect.signature(kfp.Client.create_recurring_run),
        "create_schedule": inspect.signature(aiplatform.PipelineJob.create_schedule),
        "PipelineJob": inspect.signature(aiplatform.PipelineJob),
    }
    trees = [ast.walk(ast.parse(program)) for program in programs]
    calls = [node for tree in trees for node in tree if isinstance(node, ast.Call)]
    assert len(calls) == 6
    for call in calls:
        signature = takes[call.func.attr]
        own = ["self"] if "self" in signature.parameters else []
        signature.bind(*own, *call.args, **{each.arg: each.value for each in call.keywords})
