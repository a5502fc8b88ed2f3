"""`python -m trainer_module.launch`: a program on several workers of this machine, for a trial."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from trainer_module.devices.local_cluster import WorkersFailed, launch

_HELP = """\
Runs a program as several workers on this machine, as a cluster would: each process gets TF_CONFIG
with ports of 127.0.0.1, and what it writes is shown behind its name.

    python -m trainer_module.launch --workers 2 -- python train.py --epochs 3

The program is one that runs alone as well: run_fn and create_strategy("auto") read TF_CONFIG and
train on all workers together. When a worker fails the others are ended, and the first that failed
is named with its last lines. SIGTERM and Ctrl-C are passed on, so that training saves a checkpoint;
a second one ends all at once.
"""
_MORE = """\
exit code: 0 where all ended well; else that of the first that failed (128 + n for signal n; 143
where training saved a checkpoint because of SIGTERM, 75 where a worker was lost).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer_module.launch",
        description=_HELP,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] -- program [arguments]",
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="how many (default: 2)")
    parser.add_argument(
        "--chief", action="store_true", help="one process more as the chief; else worker 0 is it"
    )
    parser.add_argument(
        "--parameter-servers",
        type=int,
        default=0,
        metavar="N",
        help="for strategy parameter_server: how many, beside a chief; they end with it",
    )
    parser.add_argument(
        "--worker-restarts",
        type=int,
        default=0,
        metavar="N",
        help="with parameter servers: how often workers that fail are started again",
    )
    parser.add_argument("--log-dir", metavar="DIR", help="a file per process too, worker-0.log")
    parser.add_argument(
        "--grace-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="between SIGTERM and SIGKILL (default: 30)",
    )
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
