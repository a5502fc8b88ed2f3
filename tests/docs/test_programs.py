"""Programs of docs pages run and print what the page says; tables name what the code has."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT

from pipeline.config.config import ExplainConfig


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


API = page("templates/api_examples/trainer_module")
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)^```$", API, re.M | re.S))


def test_each_group_of_public_names_has_one_short_example():
    stub = (ROOT / "trainer_module" / "__init__.pyi").read_text(encoding="ascii")
    assert list(EXAMPLES) == re.findall(r"^# ([A-Z][^.:]*)$", stub, re.M)
    assert max(len(example.splitlines()) for example in EXAMPLES.values()) <= 20


@pytest.mark.parametrize("group", EXAMPLES)
def test_it_runs(group, capsys):
    exec(EXAMPLES[group], {"__name__": "example"})
    printed = capsys.readouterr().out.strip().splitlines()
    for expected in re.findall(r"^print\(.*\)  # (.+)$", EXAMPLES[group], re.M):
        assert printed[-1] == expected


def test_gradients_are_those_of_the_page(capsys):
    text = page("gradients")
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python") == 7
    scope: dict[str, object] = {}
    for program, printed in blocks:
        exec(program, scope)
        assert capsys.readouterr().out == printed


def test_the_fields_of_explain_are_listed_with_their_defaults():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page("attributions"), flags=re.MULTILINE))
    defaults = {name: str(field.default) for name, field in ExplainConfig.model_fields.items()}
    assert rows == {name: "none" if value == "()" else value for name, value in defaults.items()}


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
