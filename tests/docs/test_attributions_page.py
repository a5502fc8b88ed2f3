"""The program of docs/attributions.md runs as it stands and prints what the page says."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT

from pipeline.config.config import ExplainConfig

PAGE = (ROOT / "docs" / "attributions.md").read_text(encoding="utf-8")


@pytest.mark.slow(15)
def test_the_program_prints_what_the_page_says(capsys):
    ((program, printed),) = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, flags=re.DOTALL
    )
    exec(program, {})
    assert capsys.readouterr().out == printed


def test_it_lists_each_field_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, flags=re.MULTILINE))
    shown = {name: "none" if value == "()" else value for name, value in _defaults().items()}
    assert rows == shown


def _defaults() -> dict[str, str]:
    return {name: str(field.default) for name, field in ExplainConfig.model_fields.items()}
