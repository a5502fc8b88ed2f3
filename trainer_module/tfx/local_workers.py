"""Several workers on this machine for one Trainer node, tried before a cluster is paid for.

`run_fn` comes here where `trainer.workers` asks for several and TF_CONFIG names none: each worker
is a separate process that calls `run_fn` with the same arguments and, now, a TF_CONFIG. On a
cluster the platform sets TF_CONFIG, and `workers` starts nothing.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from absl import logging

from trainer_module.common.progress import attached, decoded
from trainer_module.config import TrainerConfig
from trainer_module.devices.local_cluster import WorkersFailed, launch
from trainer_module.loop.callbacks import FitResult

# What run_fn reads of TFX's FnArgs; the rest holds functions, which no file takes.
_ARGUMENTS = (
    *("train_files", "eval_files", "transform_output", "transform_graph_path", "schema_path"),
    *("serving_model_dir", "model_run_dir", "train_steps", "hyperparameters", "custom_config"),
)


def train_on_local_workers(fn_args: Any, config: TrainerConfig, *, log_dir: str) -> FitResult:
    """Train by `run_fn` in several processes of this machine; return what the chief does.

    The chief's progress becomes this process' progress; all that the workers write is in a file
    each.

    Args:
        fn_args: As `run_fn` has them.
        config: Its `workers` says how many.
        log_dir: Folder for the files, `worker-0.log`; where it is remote, they are in a temporary
            one.

    Raises:
        RuntimeError: A worker failed: its number, what it said last, and where all of it is.
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
                    *(sys.executable, "-m", "trainer_module.tfx.worker"),
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
    """This process' own, with its import path: functions of a user's may be anywhere on it."""
    here = [os.path.abspath(entry) for entry in sys.path if entry != ""]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *here])}


def _relay(chief: str, name: str, line: str) -> None:
    """Log what a worker wrote; the chief's progress as records."""
    is_chief = name == chief
    if record := decoded(line):
        if is_chief:
            text, progress = record
            logging.get_absl_logger().info(text, extra=attached(progress))
        return
    logging.log(logging.INFO if is_chief else logging.DEBUG, "[%s] %s", name, line)
