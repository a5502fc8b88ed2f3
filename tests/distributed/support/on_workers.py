"""Runs a program of this folder on several workers and returns what each printed as JSON."""

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
_MARK = "told: "


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([*map(str, MODULES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **more}


def tell(value: Any) -> None:
    """Hands a JSON value to the test, from a worker's program."""
    print(_MARK + json.dumps(value), flush=True)


def told_by(line: str) -> Any:
    return json.loads(line.removeprefix(_MARK)) if line.startswith(_MARK) else None


def on_workers(program: str, *arguments: object, workers: int, **options: Any) -> list[list[Any]]:
    """Returns, for each worker, what its program told; it is `<program>.py` of this folder."""
    told: dict[str, list[Any]] = {}

    def keep(name: str, line: str) -> None:
        value = told_by(line)
        if value is not None:
            told.setdefault(name, []).append(value)

    launch(
        command(program, *arguments),
        workers=workers,
        env=environment(),
        on_line=keep,
        **options,
    )
    return [told.get(f"worker {number}", []) for number in range(workers)]


def command(program: str, *arguments: object) -> Sequence[str]:
    return [sys.executable, str(HERE / f"{program}.py"), *map(str, arguments)]
