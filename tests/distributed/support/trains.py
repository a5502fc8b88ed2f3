"""run_fn on one of several workers: `trains.py FOLDER JSON`, the data and settings as JSON.

KILL="WORKER PHASE TIMES SECONDS" ends a worker by SIGKILL so many seconds after a phase has begun
so many times.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

from absl import logging
from on_workers import send_to_test

from trainer_module import run_fn
from trainer_module.devices.worker_group import current_workers
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.loop.evaluation import Evaluation
from trainer_module.parameter_server.parameter_server_step import ParameterServerStep
from trainer_module.step.train_step import TrainStep
from trainer_module.tfx import run as tfx_run

PHASES = {
    "steps": (TrainStep, "run"),
    "checkpoint": (Checkpoints, "save"),
    "evaluation": (Evaluation, "__call__"),
    "export": (tfx_run, "export_model"),
}


def fn_args(folder: str, data: dict[str, str], trainer: dict, **custom) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        train_files=[data["train"]],
        eval_files=[data["eval"]],
        transform_output=data["graph"],
        model_run_dir=f"{folder}/run",
        serving_model_dir=f"{folder}/serving",
        train_steps=0,
        custom_config={"trainer": trainer, **custom},
    )


def slowly(seconds: float) -> None:
    """Make each call of the graph take longer, so that a signal comes before training ends."""

    def paused(run: Any) -> Any:
        def run_paused(*args: Any, **options: Any) -> Any:
            time.sleep(seconds)
            return run(*args, **options)

        return run_paused

    for step in (TrainStep, ParameterServerStep):
        step.run = paused(step.__dict__["run"])


def kill_in(phase: str, times: str, seconds: str) -> None:
    """End this process in a phase."""
    owner, name = PHASES[phase]
    function, left = getattr(owner, name), iter(range(int(times) - 1, -1, -1))

    def run(*args: Any, **options: Any) -> Any:
        if next(left, None) == 0:
            kill = threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()
        return function(*args, **options)

    setattr(owner, name, run)


def main(folder: str, text: str) -> None:
    if pause := float(os.environ.get("TRAINS_SLOWLY", "0")):
        slowly(pause)
    send_to_test(["pid", os.getpid()])
    asked = json.loads(text)
    number = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    worker, *kill = os.environ.get("KILL", "none").split()
    if worker == str(number):
        kill_in(*kill)
    trainer = {**asked["trainer"], **asked.get("of_worker", {}).get(str(number), {})}
    result = run_fn(fn_args(folder, asked["data"], trainer, baselines="eval"))
    send_to_test(["worker", current_workers().number])
    if result is not None:  # of one that trains
        send_to_test(["result", result._asdict()])
    send_to_test(["there", (Path(folder) / "serving" / "saved_model.pb").exists()])
    send_to_test(["label", (Path(folder) / "serving" / "assets.extra" / "label.json").exists()])


if __name__ == "__main__":
    logging.set_verbosity(logging.INFO)
    main(*sys.argv[1:])
