"""`python -m pipeline` and the console script: see `pipeline.cli.cli`."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipeline.common.process_end import run_and_exit

_EXTRA = {
    "apache_beam": "apache-beam",
    "rich_click": "rich-click",
    "tfx": "tfx",
    "yaml": "pyyaml",
}
"""Packages of the extra `pipeline` that the command line needs: module -> package."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, or print which packages it lacks: the trainer needs none of them.

    Returns:
        The exit code: that of `pipeline.cli.cli.main`; 2 where packages are missing.
    """
    missing = [name for module, name in _EXTRA.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(
            f"The command line needs {', '.join(missing)}: uv pip install "
            "'tfx-largebatch[pipeline]'. Without this extra, trainer_module works alone in plain "
            "TensorFlow.",
            file=sys.stderr,
        )
        return 2
    # TensorFlow and TFX create a million objects that stay. Garbage collection after each 700 new
    # ones, Python's default, takes a fifth of the time to import them; `run` lowers the threshold
    # once they are imported.
    gc.set_threshold(500_000, 10, 10)
    from pipeline.cli.cli import main as run_command

    return run_command(argv)


def main_and_exit() -> NoReturn:
    """Run the command line, and end this process with its exit code."""
    run_and_exit(main)


if __name__ == "__main__":
    main_and_exit()
