"""A copy of what `make setup` needs, and machines that lack one thing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)  # not the one of .venv
TOOLS = ("sh", "make", "dirname", "getconf", "id", "cat", "sed", "uname", "sha256sum", "flock")


@dataclass(frozen=True)
class Checkout:
    """A clone without its packages' code; commands run in it as a person would run them."""

    path: Path

    @property
    def venv(self) -> Path:
        return self.path / ".venv"

    def make(self, target: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", target],
            cwd=self.path,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def refusal(self, environment: Mapping[str, str]) -> str:
        """The message of a `make setup` that has to fail: one line, before anything is made."""
        done = self.make("setup", environment)
        assert done.returncode != 0, done.stdout
        lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
        assert len(lines) == 1, done.stderr
        assert not self.venv.exists()
        return lines[0]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    path = tmp_path / "a checkout"  # with a space: it has to survive quoting
    path.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, path)
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (path / "README.md").touch()
    for package in ("pipeline", "components", "transform", "trainer_module", "shared_core"):
        (path / package).mkdir()
        (path / package / "__init__.py").touch()
    return Checkout(path)


class Machine:
    """A PATH that holds a few named tools only, and a Python with modules that can be hidden."""

    def __init__(self, folder: Path):
        self.bin = folder / "bin"
        self.python_path = folder / "sitecustomize"
        self.bin.mkdir()
        self.python_path.mkdir()
        for tool in TOOLS:
            self.link(tool, shutil.which(tool) or pytest.fail(f"no {tool} on this machine"))

    def link(self, name: str, target: str) -> None:
        (self.bin / name).symlink_to(target)

    def script(self, name: str, text: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def python(self, name: str = "python3", *, at_start: str = "") -> None:
        """Puts this test's own Python on PATH, running `at_start` whenever it starts."""
        folder = self.python_path / name
        folder.mkdir()
        forget = "import os\nos.environ.pop('PYTHONPATH')\n"
        (folder / "sitecustomize.py").write_text(forget + at_start)
        self.script(name, f'PYTHONPATH={folder} exec {BASE_PYTHON} "$@"')

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.bin), "LANG": "C.UTF-8"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def own_environment() -> dict[str, str]:
    """This machine as it is, without what `make test` and .venv/bin/activate export."""
    dropped = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"PYTHON": BASE_PYTHON}
