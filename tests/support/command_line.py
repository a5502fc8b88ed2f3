"""`python -m pipeline` and other commands as a user starts them: a process each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TAXI = ROOT / "examples" / "taxi" / "pipeline.yaml"


class Result(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    output: str

    def lines(self, containing: str) -> list[str]:
        return [line for line in self.output.splitlines() if containing in line]


def run_pipeline(*arguments: str | Path, environment: dict[str, str] | None = None) -> Result:
    """Runs `python -m pipeline ...` to its end, without a terminal."""
    return run_command(sys.executable, "-m", "pipeline", *arguments, environment=environment)


def run_command(*arguments: str | Path, environment: dict[str, str] | None = None) -> Result:
    """Runs a command in the project's folder to its end, standard error with standard output."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Result(done.returncode, done.stdout)
