"""Start a node's command on this machine; other runners can replace this one.

A runner returns the process that replaces a container. This module handles what all runners share:
the log, the exit, and several processes with TF_CONFIG.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.replay.throwaway_environment import make_environment
from pipeline.targets.argument_length import refuse_long_arguments
from trainer_module.devices.gpu_check import REPLAY
from trainer_module.devices.local_cluster import WorkersFailed, describe_end, launch

_TIMED_OUT = 124  # from coreutils' timeout
_GRACE_SECONDS = 10.0
# A Python component of KFP does so before it starts.
_INSTALLS = re.compile(r"\bpip[\d.]*\b[^\n;&|]*?\b(?:un)?install\b")


class NodeCommand(NamedTuple):
    """The command that a platform starts for a node.

    Attributes:
        node: Name of the task.
        image: The container's image, as in the spec.
        words: Command and arguments, with placeholders filled. Paths in them are on this machine,
            under the replay's root or a folder of `--map`.
        env: Variables of the container in the spec, and credentials.
        pod: The pod's variables, which replace this machine's environment; None: use this machine's
            environment.
    """

    node: str
    image: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    pod: Mapping[str, str] | None = None


class Process(NamedTuple):
    """A program of this machine, its arguments, and its complete environment.

    For a node with several workers, TF_CONFIG is added to the environment of each. A runner that
    starts containers must pass on that variable and use the host's network, because the addresses
    are on 127.0.0.1.
    """

    words: list[str]
    env: dict[str, str]


Runner = Callable[[NodeCommand], Process]


def on_this_machine(command: NodeCommand) -> Process:
    """Return a container's command line as a process of this machine's Python."""
    words = list(command.words)
    here = [os.path.abspath(entry) for entry in sys.path if entry]
    env = {
        **(os.environ if command.pod is None else command.pod),
        "TF_USE_LEGACY_KERAS": "0",
        REPLAY: "1",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *here]),
        **command.env,
    }
    python = sys.executable
    if _INSTALLS.search(" ".join(words)):  # `pip` and `install` may be two words
        # Not HOME of `env`: a spec may set it to a folder of this machine, such as /tmp.
        python = str(make_environment(Path(command.pod["HOME"]) if command.pod else None))
        env["PATH"] = f"{Path(python).parent}:{_without_python(env['PATH'])}"
        del env["PYTHONPATH"]
    if words and words[0] in ("python", "python3"):
        words[0] = python
    return Process(words, env)


def run(process: Process, log: Path, *, timeout: float | None = None) -> str:
    """Run a process and append its output to a file; return how it failed, or "".

    If this process is stopped early (Ctrl-C, SIGTERM), the child gets SIGTERM, and SIGKILL 10
    seconds later.

    Args:
        process: The process to start.
        log: The file.
        timeout: Seconds until the process gets SIGTERM, and SIGKILL 10 seconds later; None: no
            limit.
    """
    if refusal := refuse_long_arguments(process.words):
        return refusal
    if not process.words:
        return "cannot start: neither command nor args name a program; name one in the spec"
    with log.open("ab") as stream:
        try:
            child = subprocess.Popen(
                _limited(process.words, timeout),
                stdout=stream,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=process.env,
            )
        except OSError as error:  # no such program, or too long arguments and variables
            return (
                f"cannot start {process.words[0]}: {error.strerror}. If only the image has the "
                "program, replay inside it"
            )
        try:
            return _how(child.wait(), timeout)
        except BaseException:
            child.terminate()
            try:
                child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
            raise


def run_workers(
    process: Process, replicas: Sequence[int], log: Path, *, timeout: float | None = None
) -> str:
    """Run a process as every replica of a CustomJob's worker pools, with TF_CONFIG as on Vertex.

    The first pool is the chief, the second the workers, the third the parameter servers.

    Args:
        process: The process to start, the same for each replica.
        replicas: Number of replicas of each pool.
        log: The file for the lines of all replicas; each replica also has a log in the folder
            `workers` next to it.
        timeout: As in `run`.

    Returns:
        How the process failed, or "".
    """
    if refusal := refuse_long_arguments(process.words):
        return refusal
    chiefs, workers, servers = (*replicas, 0, 0)[:3]
    if chiefs != 1 or workers < 1 or len(replicas) > 3:
        return f"has worker pools of {replicas} replicas; known are 1 chief, workers, servers"
    with log.open("a", encoding="utf-8") as stream:
        try:
            launch(
                _limited(process.words, timeout),
                workers=workers,
                chief=True,
                parameter_servers=servers,
                log_dir=log.parent / "workers",
                env=process.env,
                on_line=lambda name, line: print(f"[{name}] {line}", file=stream, flush=True),
            )
        except WorkersFailed as error:
            first = error.failed[0]
            return f"{_how(first.code, timeout)} (its {first.name})"
    return ""


def _without_python(path: str) -> str:
    """Return a PATH without this Python's programs, whose `pip` installs into this environment."""
    programs = str(Path(sys.executable).parent)
    return os.pathsep.join(each for each in path.split(os.pathsep) if each != programs)


def _limited(words: list[str], timeout: float | None) -> list[str]:
    if timeout is None:
        return words
    return ["timeout", "--foreground", "--kill-after=10", f"{timeout:f}", *words]


def _how(code: int, timeout: float | None) -> str:
    if timeout is not None and code == _TIMED_OUT:
        return f"was ended after its timeout of {timeout:g} s"
    return describe_end(code) if code else ""
