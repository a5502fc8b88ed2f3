"""A model of two versions, and the command that writes what its server needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import TAXI
from served_model import write_model

from pipeline.cli.cli import main


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two versions, of which 12 is the latest."""
    folder = tmp_path_factory.mktemp("serving_model")
    write_model(folder / "12")
    (folder / "9").symlink_to(folder / "12")
    return folder


@pytest.fixture
def write_manifest(model: Path, tmp_path: Path) -> Callable[..., Any]:
    """`serve-manifest` as a function: what it writes, or None for another exit code than 0."""

    def write(
        target: str, place: str, mapped: str, *arguments: str, versions: Path = model, code: int = 0
    ) -> Any:
        file = tmp_path / "serving.out"
        command = ["serve-manifest", "--target", target, "--config", str(TAXI), "--model", place]
        command += ["--map", f"{mapped}={versions}", "--output", str(file), *arguments]
        assert main(command) == code
        return yaml.safe_load(file.read_text()) if code == 0 else None

    return write
