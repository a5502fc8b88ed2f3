"""The taxi example, run once for all tests, in this process, which imports TensorFlow once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ROOT, TAXI, Result, run_here, run_line


@dataclass(frozen=True)
class TaxiRun:
    """The taxi example, run once into a separate folder."""

    folder: Path
    result: Result

    @property
    def pushed(self) -> Path:
        versions = sorted((self.folder / "serving_model").iterdir(), key=lambda path: path.name)
        return versions[-1]


@dataclass(frozen=True)
class Retrained:
    """The README's run with another training setting, and what was pushed before and after it."""

    line: str
    result: Result
    pushed_before: Path
    pushed_after: Path


@pytest.fixture(scope="session")
def taxi(tmp_path_factory: pytest.TempPathFactory) -> TaxiRun:
    folder = tmp_path_factory.mktemp("taxi") / "out"
    result = run_here("run", "--config", TAXI, f"--set=output.folder={folder}")
    assert result.code == 0, result.output
    return TaxiRun(folder, result)


@pytest.fixture(scope="session")
def retrained(taxi: TaxiRun) -> Retrained:
    """One step is enough to see that it runs; every node up to the Trainer is cached.

    It also explains the model.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^(python -m pipeline run [^#\n]*)", readme, flags=re.MULTILINE)
    explain = "explain={rows: 60}"
    changes = (f"output.folder={taxi.folder}", "training.epochs=null", "training.steps=1")
    changes = (*changes, f"'{explain}'")
    line = " ".join([line.strip(), *(f"--set={change}" for change in changes)])
    before = taxi.pushed
    return Retrained(line, run_line(line), before, taxi.pushed)
