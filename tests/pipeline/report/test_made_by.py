"""What made a run, read outside of a repository and within one."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from pipeline.report.made_by import made_by


def test_versions_and_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = made_by("run my.yaml")
    assert found["command"] == "run my.yaml"
    assert found["tfx"] == version("tfx")
    assert "git commit" not in found
    (tmp_path / "derive.py").write_text("1")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert made_by("")["git commit"] == head.stdout[:12]
    (tmp_path / "derive.py").write_text("2")
    assert made_by("")["git commit"] == f"{head.stdout[:12]} with changed files"
