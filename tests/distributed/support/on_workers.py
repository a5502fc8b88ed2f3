"""Run a program of this folder on several workers, and collect the JSON values that they send."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_module.devices.local_cluster import launch

HERE = Path(__file__).resolve().parent
# Cells, models and references are those of one process.
MODULES = (HERE, HERE.parents[1] / "trainer_module" / "support", HERE.parents[2])
_MARK = "report: "


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([*map(str, MODULES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **more}


def send_to_test(value: Any) -> None:
    """Send a JSON value to the test from a worker's program."""
    print(_MARK + json.dumps(value), flush=True)


def parse_report(line: str) -> Any:
    return json.loads(line.removeprefix(_MARK)) if line.startswith(_MARK) else None


def on_workers(program: str, *arguments: object, workers: int, **options: Any) -> list[list[Any]]:
    """Run `<program>.py` of this folder, and return the values that each worker sent."""
    sent: dict[str, list[Any]] = {}

    def keep(name: str, line: str) -> None:
        value = parse_report(line)
        if value is not None:
            sent.setdefault(name, []).append(value)

    launch(
        command(program, *arguments),
        workers=workers,
        env=environment(),
        on_line=keep,
        **options,
    )
    return [sent.get(f"worker {number}", []) for number in range(workers)]


def command(program: str, *arguments: object) -> Sequence[str]:
    return [sys.executable, str(HERE / f"{program}.py"), *map(str, arguments)]
