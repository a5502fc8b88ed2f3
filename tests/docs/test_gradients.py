"""The programs of docs/gradients.md run as they stand and print what the page says."""

from __future__ import annotations

import re

from command_line import ROOT

PAGE = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, flags=re.DOTALL)


def test_programs_print_what_the_page_says(capsys):
    assert len(BLOCKS) == PAGE.count("```python") == 7
    scope: dict[str, object] = {}
    for program, printed in BLOCKS:
        exec(program, scope)
        assert capsys.readouterr().out == printed
