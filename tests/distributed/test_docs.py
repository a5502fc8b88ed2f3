"""The programs of the pages about several processes print what the pages show."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from on_workers import environment

from trainer_module.devices.local_cluster import launch

pytestmark = pytest.mark.distributed

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "distributed.md").read_text(encoding="utf-8")


def test_the_program_runs_alone_and_on_two_workers(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    ((printed,),) = (
        found.splitlines() for found in re.findall(r"```\n(\d[^`]+)```", PAGE, flags=re.DOTALL)
    )
    file = tmp_path / "train.py"
    file.write_text(program)
    lines = []
    for workers in (1, 2):
        launch(
            [sys.executable, str(file)],
            workers=workers,
            env=environment(),
            on_line=lambda name, line: lines.append((name, line)),
        )
    said = [(name, line) for name, line in lines if "steps, loss" in line]
    assert said[0] == ("worker 0", printed)
    assert sorted(said[1:]) == [("worker 0", printed), ("worker 1", printed)]


def test_the_program_with_parameter_servers_runs(tmp_path):
    page = (DOCS / "parameter-servers.md").read_text(encoding="utf-8")
    ((program, printed),) = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", page, flags=re.DOTALL
    )
    file = tmp_path / "my_program.py"
    file.write_text(program)
    lines = []
    launch(
        [sys.executable, str(file)],
        workers=2,
        parameter_servers=1,
        env=environment(),
        on_line=lambda name, line: lines.append(line),
    )
    assert printed.strip() in lines
