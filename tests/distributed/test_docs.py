"""The program of docs/distributed.md: alone and on two workers it prints what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from on_workers import environment

from trainer_module.config import TrainerConfig
from trainer_module.devices.local_cluster import launch

pytestmark = pytest.mark.distributed

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")


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


def test_the_settings_of_the_page_have_these_defaults():
    table = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", PAGE, flags=re.MULTILINE))
    config = TrainerConfig()
    for name in ("strategy", "start_timeout_seconds", "worker_timeout_seconds"):
        default = getattr(config, name)
        assert table[name] == (f"{default:g}" if isinstance(default, float) else default)
