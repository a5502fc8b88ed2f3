"""Run one of a node's workers on this machine: `python -m trainer_module.tfx.worker IN OUT`."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

from absl import logging

from trainer_module.common.progress import ProgressLines
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.tfx.run import run_fn


def main(arguments: str, result: str) -> None:
    """Run a worker.

    Args:
        arguments: JSON file with the arguments of `run_fn`.
        result: JSON file for the FitResult, written by the chief.
    """
    logging.get_absl_logger().addHandler(ProgressLines(sys.stdout))
    logging.set_verbosity(logging.INFO)
    fn_args: Any = types.SimpleNamespace(**json.loads(Path(arguments).read_text()))
    trained = run_fn(fn_args)
    cluster = cluster_of_environment()
    # Tasks that serve a chief, as with parameter servers, have no result.
    if trained is not None and cluster is not None and cluster.number == 0:
        Path(result).write_text(json.dumps(trained._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
