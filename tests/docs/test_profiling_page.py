"""docs/profiling.md: its program prints tables of the page's form; its parts are those of the code.

The numbers are times, so only words are compared. Its command: tests/e2e/test_taxi.py.
"""

from __future__ import annotations

import re

from command_line import ROOT

PAGE = (ROOT / "docs" / "profiling.md").read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    """The first words of the lines of the parts, and the lines that name columns."""
    return re.findall(r"^(?:part|operation) .*|^[a-z][a-z ()A-Z/]*?(?=  +[\d,.]+ )", text, re.M)


def test_its_program_prints_the_tables_of_the_page(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(program, scope := {})
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```console\n\$ .*?\n(.*?)```", PAGE, re.DOTALL)
    assert headings(printed) == headings(shown)
    assert "10 steps of 512 rows on 1 replica, micro-batches of 128 rows" in printed
    for part in scope["profile"].parts:
        assert part.partition(" (XLA)")[0].split(" and ")[0] in PAGE
