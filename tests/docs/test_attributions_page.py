"""The table of docs/attributions.md lists the fields of `explain:`."""

from __future__ import annotations

import re

from command_line import ROOT

from pipeline.config.config import ExplainConfig

PAGE = (ROOT / "docs" / "attributions.md").read_text(encoding="utf-8")


def test_it_lists_each_field_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, flags=re.MULTILINE))
    shown = {name: "none" if value == "()" else value for name, value in _defaults().items()}
    assert rows == shown


def _defaults() -> dict[str, str]:
    return {name: str(field.default) for name, field in ExplainConfig.model_fields.items()}
