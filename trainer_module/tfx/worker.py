"""One of a node's workers of this machine: `python -m trainer_module.tfx.worker IN OUT`."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

from absl import logging

from trainer_module.common.progress import ProgressLines
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.tfx.run import run_fn


def main(arguments: str, result: str) -> None:
    """What each worker does.

    Args:
        arguments: JSON file with those of `run_fn`.
        result: JSON file that the chief writes, of its FitResult.
    """
    logging.get_absl_logger().addHandler(ProgressLines(sys.stdout))
    logging.set_verbosity(logging.INFO)
    fn_args = types.SimpleNamespace(**json.loads(Path(arguments).read_text()))
    trained = run_fn(fn_args)
    cluster = cluster_of_environment()
    # What serves a chief, beside parameter servers, has trained nothing itself.
    if trained is not None and cluster is not None and cluster.number == 0:
        Path(result).write_text(json.dumps(trained._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
