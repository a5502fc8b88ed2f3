"""`python -m pipeline` and the console script: see `pipeline.cli.cli`."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipeline.common.process_end import end_process

_EXTRA = {"apache_beam": "apache-beam", "rich": "rich", "tfx": "tfx", "yaml": "pyyaml"}
"""What the extra `pipeline` brings: module -> how its package is called."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, or says what it lacks: the trainer is installed without all of it.

    Returns:
        The exit code: that of `pipeline.cli.cli.main`; 2 where packages are missing.
    """
    lacking = [name for module, name in _EXTRA.items() if importlib.util.find_spec(module) is None]
    if lacking:
        print(
            f"The command line needs {', '.join(lacking)}: pip install 'tfx-largebatch[pipeline]'. "
            "Without this extra, trainer_module works alone in plain TensorFlow.",
            file=sys.stderr,
        )
        return 2
    # TensorFlow and TFX make many objects that stay: looking through them after each 700 new ones,
    # Python's default, takes a fifth of the time to import them and a tenth of that to trace.
    gc.set_threshold(50_000, 10, 10)
    from pipeline.cli.cli import main as run_command

    return run_command(argv)


def main_and_exit() -> NoReturn:
    """Runs the command line as the whole of this process, and ends it with the exit code."""
    end_process(main())


if __name__ == "__main__":
    main_and_exit()
