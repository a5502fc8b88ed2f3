"""`python -m trainer_module.launch`: run a program as several workers of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from trainer_module.devices.local_cluster import WorkersFailed, launch

_HELP = """\
Runs a program as several workers on this machine, as a cluster would. Each process gets TF_CONFIG
with ports of 127.0.0.1; each line of output is shown after the name of its process.

    python -m trainer_module.launch --workers 2 -- python train.py --epochs 3

The same program also runs without this command: run_fn and create_strategy("auto") read TF_CONFIG
and train on all workers together. When a worker fails, the others are stopped, and an error shows
the first failure with its last lines. SIGTERM and Ctrl-C are passed on, so that training saves a
checkpoint; a second one kills all processes.
"""
_MORE = """\
exit code: 0 if all succeeded; else that of the first failure (128 + n for signal n; 143 if training
saved a checkpoint after SIGTERM, 75 if a worker was lost).
"""
_OPTIONS = (
    ("--workers", 2, "number of workers"),
    ("--parameter-servers", 0, "number of them, for strategy parameter_server; adds a chief"),
    ("--worker-restarts", 0, "with parameter servers: total restarts of failed workers"),
    ("--log-dir", None, "folder for one log file per process, such as worker-0.log"),
    ("--grace-seconds", 30.0, "time between SIGTERM and SIGKILL"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer_module.launch",
        description=_HELP,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] -- program [arguments]",
    )
    for name, default, text in _OPTIONS:
        kind = type(default) if default is not None else str
        shown = text if default is None else f"{text} (default: %(default)s)"
        parser.add_argument(name, type=kind, default=default, help=shown)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    command = given.pop("command")
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        parser.error("give the program after --, such as: --workers 2 -- python train.py")
    try:
        launch(command, **given)
    except WorkersFailed as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.code
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
