"""`python -m pipeline` and other commands: as a user starts them, and in this process."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple
from unittest import mock

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


def run_here(*arguments: str | Path) -> Result:
    """Runs `python -m pipeline ...` in this process, which imports TensorFlow and TFX once."""
    from pipeline.cli.cli import main

    return call_here(lambda: main([str(argument) for argument in arguments]))


def run_line(line: str) -> Result:
    """Runs a line `python -m pipeline ...`, as a page or a run shows it, in this process."""
    words = shlex.split(line)
    assert words[1:3] == ["-m", "pipeline"], line
    return run_here(*words[3:])


def run_tfx_here(*arguments: str | Path) -> Result:
    """Runs TFX's own command line, `tfx ...`, in this process."""
    (program,) = entry_points(group="console_scripts", name="tfx")
    words = [str(argument) for argument in arguments]
    return call_here(lambda: program.load()(words, standalone_mode=False) or 0)


def call_here(function: Callable[[], int]) -> Result:
    """Calls what writes to standard output and error, also from C++; restores what it changes."""
    from absl import logging

    handler, verbosity = logging.get_absl_handler().python_handler, logging.get_verbosity()
    path, log, kept = [*sys.path], handler.stream, (os.dup(1), os.dup(2))
    with (
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as output,
        open(1, "w", buffering=1, closefd=False) as out,
        open(2, "w", buffering=1, closefd=False) as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ),
    ):
        target = os.open(output.name, os.O_WRONLY | os.O_APPEND)
        try:
            os.dup2(target, 1)
            os.dup2(target, 2)
            handler.setStream(err)
            code = function()
        finally:
            handler.setStream(log)
            logging.set_verbosity(verbosity)
            sys.path[:] = path
            for number, original in enumerate(kept, 1):
                os.dup2(original, number)
                os.close(original)
            os.close(target)
        return Result(code, output.read())
