"""Run the pipeline of a YAML file; print the processor seconds of its nodes as JSON.

A separate program that uses only what earlier versions of the packages have too, so that
`data_path.py --before` can run it on an older checkout.

    python _node_seconds.py CONFIG SECTION.FIELD=VALUE ...
"""

from __future__ import annotations

import json
import logging
import os
import sys


def processor_seconds() -> float:
    """Return the processor seconds of this process and of the children that have ended."""
    return sum(os.times()[:4])


class Clock(logging.Handler):
    """Reads the clock at the log records by which TFX's runner reports nodes."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.seconds: dict[str, float] = {}
        self._started = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Note the start or the end of a node."""
        from pipeline.report.progress import NODE_ENDS, NODE_STARTS, node_event

        event, name = node_event(record)
        if event == NODE_STARTS:
            self._started = processor_seconds()
            self.seconds.setdefault("start-up", self._started)
        elif event == NODE_ENDS:
            self.seconds[name] = processor_seconds() - self._started


def main() -> int:
    """Run it as the command line does."""
    from pipeline.__main__ import main as run_command

    clock = Clock()
    logging.getLogger("absl").addHandler(clock)
    config, *overrides = sys.argv[1:]
    settings = [f"--set={override}" for override in overrides]
    code = run_command(["run", "--config", config, *settings])
    print(json.dumps(clock.seconds))
    return code


if __name__ == "__main__":
    sys.exit(main())
