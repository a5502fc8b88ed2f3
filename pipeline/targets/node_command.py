"""A node's command, and how it is started on this machine: the one place that another way replaces.

A runner says which process stands for a container. What is common to all of them is done with that
process: its log, its end, several of them with TF_CONFIG.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class NodeCommand(NamedTuple):
    """What a platform starts for a node.

    Attributes:
        node: the task's name.
        image: the container's image, as the spec names it.
        words: its command and arguments, placeholders filled. Paths in them are of this machine,
            under the replay's root or what `--map` named.
        env: what the spec sets in the container's environment.
    """

    node: str
    image: str
    words: tuple[str, ...]
    env: Mapping[str, str]


class Process(NamedTuple):
    """A program of this machine, its arguments, and its whole environment.

    Where a node is several workers, TF_CONFIG is added to the environment of each: a runner that
    starts containers hands that name on, and the host's network, since addresses are of 127.0.0.1.
    """

    words: list[str]
    env: dict[str, str]


Runner = Callable[[NodeCommand], Process]


def on_this_machine(command: NodeCommand) -> Process:
    """A container's command line as a process of this machine's Python."""
    words = list(command.words)
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    here = [os.path.abspath(entry) for entry in sys.path if entry]
    env = {
        **os.environ,
        "TF_USE_LEGACY_KERAS": "0",
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *here]),
        **command.env,
    }
    return Process(words, env)


def ended(process: Process, log: Path) -> int:
    """Runs it, what it says at the end of a file; returns its code."""
    with log.open("ab") as stream:
        return subprocess.run(
            process.words,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=process.env,
            check=False,
        ).returncode
