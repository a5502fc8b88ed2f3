"""Programs of docs pages run and print what the page says; tables name what the code has."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import yaml
from command_line import ROOT
from pydantic import BaseModel

from pipeline.config.config import PipelineConfig


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


FOLDER = ROOT / "docs" / "api_examples"
EXAMPLES = sorted(str(file.relative_to(FOLDER)) for file in FOLDER.glob("*/*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_of_the_reference_is_short_and_runs(example, capsys, monkeypatch):
    """The groups of public names have one each: `site_pages.api_pages` reads them."""
    monkeypatch.chdir(ROOT)
    code = (FOLDER / example).read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 25
    exec(code, {"__name__": "example"})
    printed = capsys.readouterr().out.strip().splitlines()
    for expected in re.findall(r"^ *print\(.*\)  # (.+)$", code, re.M):
        assert printed.pop(0) == expected


def test_every_setting_has_its_default_meaning_and_example(site_pages):
    """Reference: the models of the YAML, each of which is described once."""
    found = []
    for page, text in site_pages.generated().items():
        pattern = r"^### `(\w+)`[^\n]*\n\n(.*?^```yaml\n.*?^```)"
        for name, block in re.findall(pattern, text, re.M | re.S) if "settings/" in page else ():
            facts, *meaning, example = re.split(r"\n\n(?=\S)", block)
            assert any(word in facts for word in ("required", "default `", "[settings]")), block
            assert meaning or "[settings](" in facts, block
            assert f"{name}:" in example
            assert yaml.safe_load("\n".join(example.splitlines()[1:-1])), block
            found.append(name)
    own = ["name", "nodes", "warnings"]  # sections that are no model
    inner = [f for field in PipelineConfig.model_fields.values() for f in models(field.annotation)]
    fields = [f.alias or n for model in dict.fromkeys(inner) for n, f in model.model_fields.items()]
    assert sorted(found) == sorted([*own, *fields])


def models(annotation):
    """The models within a type."""
    for inner in get_args(annotation):
        yield from models(inner)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)


def test_gradients_are_those_of_the_page(capsys):
    text = page("gradients")
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python") == 4
    scope: dict[str, object] = {}
    for program, printed in blocks:
        exec(program, scope)
        assert capsys.readouterr().out == printed


def headings(text: str) -> list[str]:
    """The first words of the lines of the parts, and the lines that name columns."""
    return re.findall(r"^(?:part|operation) .*|^[a-z][a-z ()A-Z/]*?(?=  +[\d,.]+ )", text, re.M)


def test_a_profile_has_the_tables_of_the_page(capsys):
    """The numbers are times, so only words count. Its command: tests/e2e/test_taxi.py."""
    text = page("profiling")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, scope := {})
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```console\n\$ .*?\n(.*?)```", text, re.DOTALL)
    assert headings(printed) == headings(shown)
    assert "10 steps of 512 rows on 1 replica, micro-batches of 128 rows" in printed
    for part in scope["profile"].parts:
        assert part.partition(" (XLA)")[0].split(" and ")[0] in text
