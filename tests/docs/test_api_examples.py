"""Each group of public names of trainer_module has one short example, which runs."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT

PAGE = ROOT / "docs" / "templates" / "api_examples" / "trainer_module.md"
EXAMPLES = dict(
    re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
)


def test_each_group_has_one():
    stub = (ROOT / "trainer_module" / "__init__.pyi").read_text(encoding="ascii")
    assert list(EXAMPLES) == re.findall(r"^# ([A-Z][^.:]*)$", stub, re.M)
    assert max(len(example.splitlines()) for example in EXAMPLES.values()) <= 20


@pytest.mark.parametrize("group", EXAMPLES)
def test_it_runs(group, capsys):
    exec(EXAMPLES[group], {"__name__": "example"})
    printed = capsys.readouterr().out.strip().splitlines()
    for expected in re.findall(r"^print\(.*\)  # (.+)$", EXAMPLES[group], re.M):
        assert printed[-1] == expected
