"""Runs the benchmarks and prints one table: `make bench`, `make bench ARGS="step_time --quick"`.

Options of one benchmark (only if it runs alone):
`make bench ARGS="step_time --models lstm,gru"`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks._report import PAGE, PROGRAMS, table, write_pages
from benchmarks._result import RESULTS, load_all


def main() -> int:
    """Runs each program in a separate process; returns how many failed."""
    names = sorted(path.stem for path in PROGRAMS.glob("[!_]*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="only show that each runs")
    parser.add_argument(
        "--table", action="store_true", help="run none: print what was measured, write the pages"
    )
    arguments, own = parser.parse_known_args()
    if own and len(arguments.names) != 1:
        parser.error(f"{' '.join(own)}: name the one benchmark whose options these are")
    for name in arguments.names:
        if name not in names:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(names)}")
    failed = []
    for name in [] if arguments.table else arguments.names or names:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(PROGRAMS / f"{name}.py")]
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "TF_USE_LEGACY_KERAS": "0"}
        command += [*own, *["--quick"] * arguments.quick]
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            failed.append(name)
    if not arguments.quick:
        results = load_all()
        write_pages()
        for machine in dict.fromkeys(result.machine for result in results):
            print(f"\n{machine}\n")
            print(table([result for result in results if result.machine == machine]))
        print(f"\nmeasured: {RESULTS}/*.json; explained: {PAGE}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
