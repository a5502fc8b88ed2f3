"""Background processes that outlive the command that started them, and are found again.

A process is identified by its id and its start time, so that another process that got the same id
later is not taken for it, nor stopped. Its name and its folder are in its environment, so it is
also found if its starter was killed before it could save the id.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "TFX_LARGEBATCH_BACKGROUND"
"""Environment variable of every process that is started here: `<name>@<folder>`."""

STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Background:
    """One process."""

    name: str
    pid: int
    created: float  # seconds since the epoch, from psutil
    log: str

    def process(self) -> psutil.Process | None:
        """Return the process; None if it has ended."""
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.created) > 1 or found.status() == "zombie":
                return None
        except psutil.NoSuchProcess:
            return None
        return found

    def last_line(self) -> str:
        """Return the last line of its log that may give the cause of its end."""
        try:
            lines = Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "it wrote nothing"
        # A JVM without memory ends with that line. Otherwise of a Java stack trace the innermost
        # cause, of a Python one the last line.
        ends = [line for line in lines if line.startswith("Terminating due to ")]
        causes = [line for line in lines if line.startswith("Caused by: ")]
        others = [line for line in lines if line.strip() and not line.lstrip().startswith("at ")]
        return (ends or causes or others or ["it wrote nothing"])[-1].strip()


def start(name: str, command: Sequence[str], folder: Path) -> Background:
    """Start a process in a separate session, so that Ctrl-C does not reach it.

    Args:
        name: Name in messages, and of the log.
        command: The program and its arguments.
        folder: Folder of its log, `log/<name>.log`; `started_in` finds the process by it.
    """
    log = folder / "log" / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, MARK: f"{name}@{folder}"},
        )
    return Background(name, process.pid, psutil.Process(process.pid).create_time(), str(log))


def started_in(folder: Path) -> list[Background]:
    """Return the running processes that `start` started for a folder, without their children."""
    return [
        Background(name, process.pid, process.create_time(), str(folder / "log" / f"{name}.log"))
        for process, name, at in _marked()
        if at == str(folder)
    ]


def folders() -> set[Path]:
    """Return the folders for which processes run."""
    return {Path(folder) for _, _, folder in _marked()}


def _marked() -> list[tuple[psutil.Process, str, str]]:
    marked: dict[int, tuple[psutil.Process, str, str]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # another user's, or gone
            name, at, folder = process.environ().get(MARK, "").partition("@")
            if at and process.status() != "zombie":
                marked[process.pid] = (process, name, folder)
    return [found for found in marked.values() if _parent(found[0]) not in marked]


def _parent(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return None


def stop(processes: Sequence[Background]) -> None:
    """Terminate all with their children; kill those that have not ended after ten seconds."""
    running: list[psutil.Process] = []
    for background in processes:
        process = background.process()
        if process:
            running += [process, *process.children(recursive=True)]
    for process in running:
        _unless_gone(process.terminate)
    _, stubborn = psutil.wait_procs(running, timeout=STOP_SECONDS)
    for process in stubborn:
        _unless_gone(process.kill)
    psutil.wait_procs(stubborn, timeout=STOP_SECONDS)


def _unless_gone(action: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        action()
