"""Run several workers on this machine for one Trainer node, to test before using a cluster.

`run_fn` uses this module if `trainer.workers` is above 1 and TF_CONFIG names no workers. Each
worker is a separate process that calls `run_fn` with the same arguments and with a TF_CONFIG. On a
cluster the platform sets TF_CONFIG, and `workers` starts nothing.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from trainer_module.common.progress import attached, parse_line
from trainer_module.config import TrainerConfig
from trainer_module.devices.local_cluster import WorkersFailed, launch
from trainer_module.loop.callback import FitResult

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

# The fields of TFX's FnArgs that run_fn reads; others hold functions, which are not serializable.
_ARGUMENTS = (
    *("train_files", "eval_files", "transform_output", "transform_graph_path", "schema_path"),
    *("serving_model_dir", "model_run_dir", "train_steps", "hyperparameters", "custom_config"),
)


def train_on_local_workers(fn_args: FnArgs, config: TrainerConfig, *, log_dir: str) -> FitResult:
    """Train by `run_fn` in several processes of this machine; return the chief's result.

    This process reports the chief's progress. Each worker's output is written to its log file.

    Raises:
        RuntimeError: A worker failed. The message has its number, its last lines and its log file.
    """
    workers = config.workers or 1
    servers = int(config.strategy == "parameter_server")
    local = "://" not in log_dir
    with tempfile.TemporaryDirectory(prefix="workers-") as folder:
        arguments, result = Path(folder, "arguments.json"), Path(folder, "result.json")
        arguments.write_text(
            json.dumps({name: getattr(fn_args, name, None) for name in _ARGUMENTS})
        )
        logs = Path(log_dir) if local else Path(tempfile.mkdtemp(prefix="worker-logs-"))
        logging.info("Training on %d workers of this machine; their logs are in %s", workers, logs)
        try:
            launch(
                [
                    *(sys.executable, "-m", "trainer_module.tfx.run"),
                    *(str(arguments), str(result)),
                ],
                workers=workers,
                parameter_servers=servers,
                log_dir=logs,
                env=_environment(),
                on_line=functools.partial(_relay, "chief" if servers else "worker 0"),
            )
        except WorkersFailed as error:
            raise RuntimeError(f"training on {workers} workers of this machine: {error}") from None
        return FitResult(**json.loads(result.read_text()))


def _environment() -> dict[str, str]:
    """Return this process's environment with its import path, so that workers find user modules."""
    here = [os.path.abspath(entry) for entry in sys.path if entry != ""]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *here])}


def _relay(chief: str, name: str, line: str) -> None:
    """Log a line of a worker; attach the chief's progress as records."""
    is_chief = name == chief
    if record := parse_line(line):
        if is_chief:
            text, progress = record
            logging.get_absl_logger().info(text, extra=attached(progress))
        return
    logging.log(logging.INFO if is_chief else logging.DEBUG, "[%s] %s", name, line)
