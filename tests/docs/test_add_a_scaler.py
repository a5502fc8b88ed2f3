"""docs/add-a-scaler.md: three files change as the page says, and the contract tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT
from doc_pages import fresh_clone

PAGE = (ROOT / "docs" / "add-a-scaler.md").read_text(encoding="utf-8")
EDIT = re.compile(
    r"^In `(\S+)`, above (`+)(.+?)\2.*?:\n\n```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL
)


@pytest.mark.pipelines
def test_the_walk(tmp_path: Path):
    clone = fresh_clone(tmp_path)
    edits = EDIT.findall(PAGE)
    assert len({file for file, *_ in edits}) == 3
    for file, _, place, lines in edits:
        text = (clone / file).read_text(encoding="utf-8")
        assert text.count(place) == 1
        (clone / file).write_text(text.replace(place, f"{lines}{place}"), encoding="utf-8")
    tests = ["scale/test_contract.py", "scale/test_table.py", "test_preprocessing.py"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"tests/transform/{name}" for name in tests),
        ],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
