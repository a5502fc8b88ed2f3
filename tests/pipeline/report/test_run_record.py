"""The record of a run, how it is named, and what made it."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from run_records import SUMMARY_OF_A_RUN
from run_records import write as write_run

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.report.run_record import latest_record, made_by, records_of, write_record


def test_the_latest_run_is_found(tmp_path: Path) -> None:
    for name in ("20260130-100000", "20260131-110000", "20260131-100000"):
        write_run(tmp_path, name)
    assert latest_record(tmp_path).name == "20260131-110000"
    with pytest.raises(ConfigError, match="holds no record"):
        latest_record(tmp_path / "empty")


def test_a_record_follows_a_moved_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "before", "20260130-100000")
    (tmp_path / "before").rename(tmp_path / "after")
    (record,) = records_of(tmp_path / "after")
    assert record.config.output.folder == str(tmp_path / "after")
    assert record.config.training.epochs == 5


def test_the_configuration_of_a_record_is_that_of_the_run(write: Any, tmp_path: Path) -> None:
    """Also fields whose name in the YAML is a word of Python."""
    nodes = [{"class": "outside.counting.RowCounter", "name": "rows", "before": "Trainer"}]
    config = load_config(write(lambda c: c.update(nodes=nodes)))
    folder = Path(config.output.folder, "runs", "20260130-100000")
    record = write_record(folder, config, SUMMARY_OF_A_RUN)
    assert record.config == config
    assert load_config(folder / "config.json") == config


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
