"""Kill runs of `run_fn` at random points and restart them: `python kills.py --help`.

This process imports TensorFlow once and never uses it; each attempt is a fork of it, so that it
starts quickly. The program prints its kills as one line of JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform  # noqa: F401  what run_fn needs, imported once for all attempts

from trainer_module import run_fn
from trainer_module.loop import evaluation
from trainer_module.loop.checkpoints import Checkpoints
from trainer_module.step.train_step import TrainStep
from trainer_module.tfx import run as tfx_run

# Where kills fall.
PHASES = ("steps", "checkpoint", "evaluation", "export")


@dataclasses.dataclass(frozen=True)
class Run:
    """A training, by the folder that all its attempts share."""

    folder: Path
    transform: Path
    trainer: dict[str, Any]
    workers: int

    def arguments(self, worker: int) -> types.SimpleNamespace:
        own = self.folder if worker == 0 else self.folder / f"worker_{worker}"
        return types.SimpleNamespace(
            train_files=[str(self.transform / "train" / "examples*")],
            eval_files=[str(self.transform / "eval" / "examples*")],
            transform_output=str(self.transform / "graph"),
            serving_model_dir=str(own / "Format-Serving"),
            model_run_dir=str(own / "model_run"),
            custom_config={
                "trainer": {**self.trainer, "checkpoint_dir": str(self.folder / "saved")}
            },
        )


@dataclasses.dataclass
class Attempt:
    """Processes that train; the chief reports its phases."""

    pids: list[int]
    phases: int  # read end of a pipe

    def wait_for(self, phase: str | None, times: int) -> bool:
        """Wait until the phase has begun so many times; return False if all workers end first."""
        received = b""
        while chunk := os.read(self.phases, 4096):
            received += chunk
            if phase is not None and received.split().count(phase.encode()) >= times:
                return True
        return False

    def kill(self, worker: int) -> None:
        os.kill(self.pids[worker], signal.SIGKILL)

    def codes(self) -> list[int]:
        """Return the exit codes, minus the number of the signal."""
        os.close(self.phases)
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]


def start(run: Run) -> Attempt:
    """Fork the workers."""
    ports = free_ports(run.workers)
    read, write = os.pipe()
    pids = []
    for worker in range(run.workers):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            attend(run, worker, ports, write)
        pids.append(pid)
    os.close(write)
    return Attempt(pids, read)


def attend(run: Run, worker: int, ports: list[int], phases: int) -> None:
    """Train as this worker, and ends the process."""
    log = os.open(run.folder / f"log_{worker}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if run.workers > 1:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        task = {"type": "worker", "index": worker}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    if worker == 0:
        report_phases(phases)
    else:
        os.close(phases)
    try:
        result = run_fn(run.arguments(worker))
        if worker == 0:
            (run.folder / "result.json").write_text(json.dumps(result._asdict()))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def report_phases(pipe: int) -> None:
    """Write each phase to the pipe when it begins, and its length in seconds when it ends."""

    def reporting(phase: str, function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            os.write(pipe, f"{phase}\n".encode())
            began = time.monotonic()
            try:
                return function(*args, **options)
            finally:
                os.write(pipe, f"{phase}={time.monotonic() - began:.4f}\n".encode())

        return wrapper

    TrainStep.run = reporting("steps", TrainStep.run)
    Checkpoints.save = reporting("checkpoint", Checkpoints.save)
    evaluation.Evaluation.__call__ = reporting("evaluation", evaluation.Evaluation.__call__)
    tfx_run.export_model = reporting("export", tfx_run.export_model)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def whole(run: Run) -> dict[str, float]:
    """Train without a kill; return the longest duration of each phase, in seconds."""
    run.folder.mkdir(parents=True)
    attempt = start(run)
    text = b""
    while select.select([attempt.phases], [], [])[0] and (chunk := os.read(attempt.phases, 4096)):
        text += chunk
    codes = attempt.codes()
    assert codes == [0] * run.workers, (codes, logs(run))
    lasted: dict[str, float] = {}
    for line in text.decode().split():
        phase, _, seconds = line.partition("=")
        if seconds:
            lasted[phase] = max(lasted.get(phase, 0.0), float(seconds))
    return lasted


def killed(run: Run, lasted: dict[str, float], wanted: list[str], draw: random.Random) -> list[Any]:
    """Kill attempts in the wanted phases until one ends; return the kills."""
    run.folder.mkdir(parents=True)
    kills = []
    while True:
        phase = wanted[0] if wanted else None
        attempt = start(run)
        times = 1 if phase == "export" else draw.randint(1, 2)
        if not attempt.wait_for(phase, times) or phase is None:
            codes = attempt.codes()
            assert codes == [0] * run.workers, (codes, logs(run))
            return kills
        worker = draw.randrange(run.workers)
        time.sleep(draw.uniform(0, lasted[phase]))
        attempt.kill(worker)
        began = time.monotonic()
        codes = attempt.codes()
        if codes[worker] == 0:  # it was over in the meantime: no kill
            continue
        assert codes[worker] == -signal.SIGKILL, (codes, logs(run))
        assert all(code != 0 for code in codes), (codes, logs(run))
        wanted.pop(0)
        kills.append([phase, worker, round(time.monotonic() - began, 2)])
        if phase == "export" and draw.random() < 0.5:
            wanted.sort(key=lambda each: each != "export")  # the run has nothing else left


def logs(run: Run) -> str:
    return "\n".join(path.read_text()[-3000:] for path in run.folder.glob("log_*.txt"))


def variables(run: Run) -> list[tuple[Any, ...]]:
    """Return all variables of the exported model and of the last checkpoint, as bytes.

    Those of the model are sorted: Keras' archive numbers them in the order of a set.
    """
    (last,) = run.folder.glob("saved/*/checkpoint")
    state = tf.train.get_checkpoint_state(str(last.parent))
    saved = tf.train.load_checkpoint(state.model_checkpoint_path)
    exported = tf.train.load_checkpoint(str(run.folder / "Format-Serving/variables/variables"))

    def values(reader: Any) -> list[tuple[Any, ...]]:
        # The object graph names files; of the position, result.json has what counts.
        others = {"_CHECKPOINTABLE_OBJECT_GRAPH", "position"}
        names = sorted(set(reader.get_variable_to_shape_map()) - others)
        tensors = [(name, np.asarray(reader.get_tensor(name))) for name in names]
        return [(name, tensor.shape, tensor.tobytes()) for name, tensor in tensors]

    return values(saved) + sorted(shape_and_bytes for _, *shape_and_bytes in values(exported))


def main() -> None:
    """Print {"kills": [[phase, worker, seconds until all had ended], ...], "runs": n}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transform", type=Path, required=True, help="a small_transform's folder")
    parser.add_argument("--folder", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--trainer", type=json.loads, required=True, help="settings, as JSON")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="kills in each phase but the export")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)

    def run(name: str) -> Run:
        return Run(options.folder / name, options.transform, options.trainer, options.workers)

    reference = run("whole")
    lasted = whole(reference)
    assert set(lasted) == set(PHASES), lasted
    expected = variables(reference)
    result = (reference.folder / "result.json").read_text()
    wanted = [phase for phase in PHASES for _ in range(1 if phase == "export" else options.times)]
    draw.shuffle(wanted)
    kills, runs = [], 0
    while wanted:
        runs += 1
        other = run(f"killed_{runs}")
        kills += killed(other, lasted, wanted, draw)
        assert variables(other) == expected, logs(other)
        assert (other.folder / "result.json").read_text() == result, logs(other)
    print(json.dumps({"kills": kills, "runs": runs, "variables": len(expected)}))


if __name__ == "__main__":
    sys.exit(main())
