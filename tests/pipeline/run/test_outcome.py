"""What `run --json` prints if no node has run; tests/e2e has runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.run.folder_lock import exclusive_run


def error_of(printed: str) -> dict[str, Any]:
    document = json.loads(printed)
    assert list(document) == ["error"]
    return document["error"]


def test_a_wrong_configuration(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write()), "--set", "training.epoch=1", "--json"]) == 2
    out, err = capfd.readouterr()
    error = error_of(out)
    assert (error["exit_code"], error["node"], error["log"]) == (2, None, None)
    assert "training.epoch" in error["message"]
    assert err.strip() == error["message"].strip()


def test_a_folder_in_use(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    file = write()
    folder = Path(load_config(file).output.folder)
    folder.mkdir()
    with exclusive_run("another run", {"output.folder": folder}):
        assert main(["run", str(file), "--json", "--quiet"]) == 4
    out, err = capfd.readouterr()
    assert error_of(out)["exit_code"] == 4
    assert "another run" in error_of(out)["message"]
    assert err.strip() == error_of(out)["message"]
