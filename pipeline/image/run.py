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

from pipeline.image.builders import CHROOT, Builder
from pipeline.image.containerfile import USER_ID

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
    """Run the command in a container and return its exit code."""
    owner = Owner.here()
    for folder in wanted.write:
        owner.hand_over(Path(folder))
    options = [f"--volume={each}:{each}" for each in wanted.write]
    options += [f"--volume={each}:{each}:ro" for each in wanted.read]
    options += [f"--env={name}={value}" for name, value in owner.env.items()]
    # docker and podman take the value from their environment.
    options += [
        f"--env={name}={value}" if builder.name == "buildah" else f"--env={name}"
        for name, value in wanted.env.items()
    ]
    options += [f"--user={owner.user}"]
    if builder.name == "buildah":
        return _with_buildah(wanted, options)
    shared = ["--rm", "--network=host", "--ipc=host", "--entrypoint="]
    if builder.name == "podman":
        shared += ["--userns=keep-id"] if os.geteuid() else []
    command = [builder.name, "run", *shared, *options, wanted.image, *wanted.words]
    return _run_with_signals(command, lambda process, number: process.send_signal(number))


class Owner(NamedTuple):
    """The user of the command: the image's user if this process is root, else the current user.

    So nothing runs as root, and the command's files can be read and removed outside.
    """

    user: str
    env: Mapping[str, str]

    @classmethod
    def here(cls) -> Owner:
        """Return the owner for this process."""
        if os.geteuid() == 0:
            return cls(f"{USER_ID}:0", {})
        return cls(f"{os.geteuid()}:{os.getegid()}", {"HOME": "/tmp"})

    def hand_over(self, folder: Path) -> None:
        """Let the user write to folders and files that root created."""
        if os.geteuid():
            return
        for path in (folder, *folder.rglob("*")):
            if path.lstat().st_uid == 0:
                os.chown(path, USER_ID, -1, follow_symlinks=False)


def _with_buildah(wanted: Run, options: Sequence[str]) -> int:
    """Run the command with buildah, which has separate commands to create and remove containers."""
    done = subprocess.run(
        ["buildah", "from", "--pull=never", wanted.image],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    container = done.stdout.strip()
    command = ["buildah", "run", CHROOT, "--network=host", *options, container, "--"]
    try:
        return _run_with_signals([*command, *wanted.words], _signal_the_command)
    finally:
        subprocess.run(["buildah", "rm", container], stdout=subprocess.DEVNULL, check=False)


def _run_with_signals(
    command: Sequence[str], send: Callable[[subprocess.Popen[bytes], int], None]
) -> int:
    # A new session: a terminal's Ctrl-C would also reach the tool, which kills the command.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def pass_on(number: int, frame: FrameType | None) -> None:
        send(process, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    return process.wait()


def _signal_the_command(process: subprocess.Popen[bytes], number: int) -> None:
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
    parser.add_argument("--builder", required=True, choices=("docker", "podman", "buildah"))
    parser.add_argument("--image", required=True)
    for name in ("--write", "--read", "--env"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(argv)
    env = {name: os.environ[name] for name in given.env}
    if _INHERITED in os.environ:
        env[_INHERITED] = os.environ[_INHERITED]
    wanted = Run(given.image, given.words, given.write, given.read, env)
    return run(Builder(given.builder), wanted)


if __name__ == "__main__":
    sys.exit(main())
