"""Run one command in a container of an image, forward signals, and remove the container.

    python -m pipeline.image.run --builder buildah --image NAME --write FOLDER --read FOLDER \
        --env NAME=VALUE -- python -m ...

Paths are the same inside and outside. SIGTERM and Ctrl-C are forwarded to the command, which has
unlimited time to end. Returns the command's exit code.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import psutil

from pipeline.image.builders import CHROOT, NAMES, Builder

USER_ID = 1000
"""The user of a node in the image, as in the Containerfile."""

_INHERITED = "TF_CONFIG"
"""It differs between worker processes, so it is passed on from this process's environment."""


class Run(NamedTuple):
    """A command and its container.

    Attributes:
        image: Name of the image.
        words: The command, which replaces the entry point.
        write: Folders of this machine that the command may write to.
        read: Folders and files that the command only reads.
        env: Variables in addition to those of the image.
    """

    image: str
    words: Sequence[str]
    write: Sequence[str] = ()
    read: Sequence[str] = ()
    env: Mapping[str, str] = {}

    def command_line(self, builder: Builder) -> list[str]:
        """Return the command that starts it; `env` must be in that process's environment.

        Only names of variables are arguments. Values may be credentials, and every user of a
        machine can read the arguments of a process.
        """
        given = [f"--write={each}" for each in self.write]
        given += [f"--read={each}" for each in self.read]
        given += [f"--env={name}" for name in self.env]
        start = [sys.executable, "-m", "pipeline.image.run", f"--builder={builder.name}"]
        return [*start, f"--image={self.image}", *given, "--", *self.words]


def run(builder: Builder, wanted: Run) -> int:
    """Run the command in a container and return its exit code.

    The command's user is the image's if this process is root, else the current one: nothing runs as
    root, and the command's files can be read and removed outside.
    """
    is_root = os.geteuid() == 0
    user = f"{USER_ID}:0" if is_root else f"{os.geteuid()}:{os.getegid()}"
    for folder in wanted.write if is_root else ():
        _give_to_user(Path(folder))
    options = [f"--user={user}", *([] if is_root else ["--env=HOME=/tmp"])]
    options += [f"--volume={each}:{each}" for each in wanted.write]
    options += [f"--volume={each}:{each}:ro" for each in wanted.read]
    if builder.name == "buildah":
        options += [f"--env={name}={value}" for name, value in wanted.env.items()]
        return _with_buildah(wanted, options)
    # docker and podman take the values from their environment.
    options += ["--rm", "--network=host", "--ipc=host", "--entrypoint="]
    options += [f"--env={name}" for name in wanted.env]
    options += ["--userns=keep-id"] if builder.name == "podman" and not is_root else []
    return _run_with_signals(
        [builder.name, "run", *options, wanted.image, *wanted.words],
        subprocess.Popen.send_signal,
    )


def _give_to_user(folder: Path) -> None:
    """Let the image's user write to folders and files that root created."""
    for path in (folder, *folder.rglob("*")):
        if path.lstat().st_uid == 0:
            os.chown(path, USER_ID, -1, follow_symlinks=False)


def _with_buildah(wanted: Run, options: Sequence[str]) -> int:
    """Run the command with buildah, which has separate commands to create and remove containers."""
    done = subprocess.run(
        ["buildah", "from", "--pull=never", wanted.image],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.returncode
    container = done.stdout.strip()
    command = ["buildah", "run", CHROOT, "--network=host", *options, container, "--"]
    try:
        return _run_with_signals([*command, *wanted.words], _signal_command)
    finally:
        subprocess.run(["buildah", "rm", container], stdout=subprocess.DEVNULL, check=False)


def _run_with_signals(
    command: Sequence[str], send: Callable[[subprocess.Popen[bytes], int], None]
) -> int:
    # A new session: a terminal's Ctrl-C would also reach the tool, which kills the command.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def forward(number: int, frame: FrameType | None) -> None:
        send(process, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    return process.wait()


def _signal_command(process: subprocess.Popen[bytes], number: int) -> None:
    """Send the signal to the command, which has no PID namespace; buildah would kill it."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for each in below:  # parents first
        try:
            name = (each.cmdline() or [""])[0]
            if not Path(name).name.startswith("buildah"):
                each.send_signal(number)
                return
        except psutil.NoSuchProcess:
            continue
    process.send_signal(number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments describe."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.image.run")
    parser.add_argument("--builder", required=True, choices=NAMES)
    parser.add_argument("--image", required=True)
    for name in ("--write", "--read", "--env"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(argv)
    names = {*given.env, *({_INHERITED} & os.environ.keys())}
    env = {name: os.environ[name] for name in sorted(names)}
    return run(Builder(given.builder), Run(given.image, given.words, given.write, given.read, env))


if __name__ == "__main__":
    sys.exit(main())
