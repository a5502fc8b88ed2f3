r"""The program of each pod of a TFJob: run the node's entry point, pass the chief's output on.

    python -m pipeline.targets.tfjob_worker --result s3://.../tfjob_result.json \
        --executor_class_path ... --json_serialized_invocation_args ...

Kubeflow's launcher reads ExecutorOutput from the disk of its pod, which is another pod. So the
chief writes a copy next to the node's artifacts. The chief ends when the launcher has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pipeline.common.process_end import run_and_exit
from pipeline.targets import entry_point
from pipeline.targets.container_flags import INVOCATION, take_option
from pipeline.targets.tfjob_client import Cluster, LauncherWatch
from trainer_module.devices.cluster import cluster_of_environment

RESULT = "--result"
LAUNCHER_POD = "TFJOB_LAUNCHER_POD"
"""Variable with the name of the launcher's pod."""


def main(argv: Sequence[str]) -> object:
    """Run the entry point as one task of the job.

    Returns:
        The exit code (as for SystemExit).
    """
    arguments = list(argv)
    result = take_option(arguments, RESULT) or ""
    at = arguments.index(INVOCATION) + 1
    executor_input = json.loads(arguments[at])
    with tempfile.TemporaryDirectory(prefix="tfjob-") as folder:
        output = Path(folder) / "executor_output.json"
        executor_input["outputs"]["outputFile"] = str(output)
        arguments[at] = json.dumps(executor_input)
        cluster = cluster_of_environment()
        is_chief = cluster is None or cluster.role == "chief"
        if is_chief and (here := Cluster.of_this_pod(os.environ, LAUNCHER_POD)):
            LauncherWatch(here, _end).start()
        code = entry_point.exit_code(arguments)
        if not code and is_chief:
            from tensorflow.io import gfile

            with gfile.GFile(result, "w") as stream:
                stream.write(output.read_text(encoding="utf-8"))
    return code


def _end(reason: str) -> None:
    """End this process with SIGTERM, so that training saves a checkpoint."""
    print(f"{reason}: this job ends", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def main_and_exit(argv: Sequence[str]) -> NoReturn:
    """Run `main` and end this process with its exit code."""
    run_and_exit(lambda: main(argv))


if __name__ == "__main__":
    main_and_exit(sys.argv)
