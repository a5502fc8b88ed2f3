"""Run the pipeline of a YAML file; print what each node takes as JSON.

    python _node_costs.py CONFIG SECTION.FIELD=VALUE ...

For each node: `seconds` by the clock, `cpu_seconds` of this process and of the children that have
ended, and `peak` resident memory of this process in bytes while the node runs (`VmHWM`, which is
set to what is resident when it starts).
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "examples/chicago_taxi_pipeline/data/simple/data.csv"
Costs = dict[str, dict[str, float]]


def write_taxi_csv(file: Path, rows: int) -> None:
    """Writes the rows of the CSV in the tfx wheel, over and over."""
    found = importlib.util.find_spec("tfx")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).parent / SOURCE
    header, *lines = source.read_text().splitlines(keepends=True)
    with file.open("w") as stream:
        stream.write(header)
        for start in range(0, rows, len(lines)):
            stream.writelines(lines[: rows - start])


def node_costs(*overrides: str, example: str = "taxi") -> Costs:
    """Runs an example with other settings in a new process; returns the nodes' costs."""
    config = ROOT / "examples" / example / "pipeline.yaml"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": "0"}
    command = [sys.executable, __file__, str(config), *overrides]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        raise SystemExit(f"{' '.join(command)} failed:\n{said}")
    return json.loads(done.stdout.strip().rpartition("\n")[2])


class Meter(logging.Handler):
    """Measures at the log records by which TFX's runner reports nodes."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.costs: Costs = {}
        self._started = self._cpu = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Note the start or the end of a node."""
        from benchmarks._transform import peak_memory
        from pipeline.report.progress import NODE_ENDS, NODE_STARTS, node_event

        event, name = node_event(record)
        if event == NODE_STARTS:
            Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
            self._started, self._cpu = time.perf_counter(), sum(os.times()[:4])
        elif event == NODE_ENDS:
            self.costs[name] = {
                "seconds": time.perf_counter() - self._started,
                "cpu_seconds": sum(os.times()[:4]) - self._cpu,
                "peak": peak_memory(),
            }


def main() -> None:
    """Run it."""
    import gc

    import absl.logging

    gc.set_threshold(500_000, 10, 10)  # as the command line does

    from pipeline.config.config_file import load_config

    config: Any = load_config(sys.argv[1], sys.argv[2:])
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    from pipeline.graph.build import create_pipeline

    absl.logging.use_absl_handler()
    absl.logging.set_verbosity(absl.logging.INFO)
    meter = Meter()
    logging.getLogger("absl").addHandler(meter)
    LocalDagRunner().run(create_pipeline(config))
    print(json.dumps(meter.costs))


if __name__ == "__main__":
    main()
