"""Start a memory probe in a child process and read its outcome."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from trainer_module.memory.micro_batch_search import MemoryNeed
from trainer_module.memory.probe import ProbeRequest

_LOG_LINES = 20


def measure_in_child(request: ProbeRequest) -> MemoryNeed:
    """Return the need of a step, measured in a child process.

    If the child stopped at its limit, ran out of memory or was killed (SIGKILL, which the kernel
    sends when memory is short), the result has `finished=False`.

    Raises:
        ValueError: The child rejected the model or another argument; has the child's message.
        RuntimeError: The child failed for another reason than memory.
    """
    with tempfile.TemporaryDirectory(prefix="memory-probe-") as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps(request))
        with (folder / "log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "trainer_module.memory.probe", name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
            try:
                child.wait()
            finally:
                child.kill()
                child.communicate()
        return _need(request, child.returncode, folder)


def _environment() -> dict[str, str]:
    """Return an environment in which a child can import the same modules as this process."""
    env = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    env["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    env["TF_USE_LEGACY_KERAS"] = "0"
    if threads := tf.config.threading.get_intra_op_parallelism_threads():
        env["TF_NUM_INTRAOP_THREADS"] = str(threads)
    return env


def _need(request: ProbeRequest, returncode: int, folder: Path) -> MemoryNeed:
    outcome = folder / "outcome.json"
    if outcome.exists():
        answer = json.loads(outcome.read_text())
        if "error" not in answer:
            return MemoryNeed(**answer)
        if answer["error"] == "ValueError":
            raise ValueError(answer["message"])
        reason = f"{answer['error']}: {answer['message']}"
    elif returncode == -signal.SIGKILL:
        return MemoryNeed(0, finished=False)
    else:
        reason = f"exit status {returncode}"
    text = (folder / "log").read_text(errors="replace")
    if "std::bad_alloc" in text:
        return MemoryNeed(0, finished=False)
    log = "\n".join(text.splitlines()[-_LOG_LINES:])
    raise RuntimeError(
        f"the process that measures the memory of micro-batches of {request.micro_batch_size} rows "
        f"failed ({reason}); set micro_batch_size to a number to train without it. Its last "
        f"lines:\n{log}"
    )
