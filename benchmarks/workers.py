"""What several processes take, against one process with as many logical devices.

A step of SGD on 256 rows, on 2 and 4 workers of one CPU device each, started by
`trainer_module.launch` on this machine, and on as many logical devices of one process: the
same sums by TCP on loopback in place of shared memory. The small model has 6,337 parameters, the
large one 5.2 million (21 MB of gradients); they share the machine's cores either way, so that this
is what several processes cost, not what more machines gain. The reduction alone sums the same
tensors over the replicas and does nothing else; it is shown as a share of the step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import _report
from benchmarks._result import Limit, Row
from benchmarks._workers import MARK, MODELS
from trainer_module import launch

PROGRAM = Path(__file__).with_name("_workers.py")
STEPS = 400


def main() -> None:
    """Measures one process and several in turns."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    rounds, steps = (1, 2) if arguments.quick else (arguments.runs, STEPS)
    counts = (2,) if arguments.quick else (2, 4)
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        found.setdefault((1, "one_device"), []).append(measured("one_device", 1, 1, steps))
        for count in counts:
            for name in ("mirrored", "multi_worker"):
                several = name == "multi_worker"
                workers, devices = (count, 1) if several else (1, count)
                found.setdefault((count, name), []).append(measured(name, workers, devices, steps))
    rows: list[Row] = []
    for model in MODELS:
        for count in counts:
            workers = [each[model] for each in found[count, "multi_worker"]]
            one = [each[model] for each in found[count, "mirrored"]]
            alone = [each[model] for each in found[1, "one_device"]]
            took = [each["step"] for each in workers]
            of = f"{model} model, {count} workers"
            # A step that computes for long should hardly see whether memory or a socket is between.
            limit = Limit(1.5) if model == "large" else None
            rows += [
                Row(
                    of,
                    "logical devices of one process",
                    took,
                    [each["step"] for each in one],
                    limit=limit,
                ),
                Row(of, "one process, one device", took, [e["step"] for e in alone]),
                Row(
                    f"reduction: {of}",
                    "the whole step",
                    [each["reduction"] for each in workers],
                    took,
                ),
            ]
    _report.publish(__file__, rows, quick=arguments.quick)


def measured(name: str, workers: int, devices: int, steps: int) -> dict[str, Any]:
    """Returns what the chief measured."""
    printed: list[str] = []

    def keep(process: str, line: str) -> None:
        if process == "worker 0" and line.startswith(MARK):
            printed.append(line.removeprefix(MARK))

    launch(
        [sys.executable, str(PROGRAM), name, str(devices), str(steps)],
        workers=workers,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        on_line=keep,
    )
    return json.loads(printed[-1])


if __name__ == "__main__":
    main()
