"""End a process without its C++ libraries' cleanup, which may abort it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_and_exit(main: Callable[[], object]) -> NoReturn:
    """Run a program's `main` and end this process at once, after Python's exit functions.

    In a normal exit, also after an error that nobody catches, C++ threads that still wait (for a
    dead job server, or tensorflow-io's for S3) abort the process: the exit code is that of a
    signal, and the last lines of the log are not the error's. `main` returns what SystemExit takes.
    """
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    except Exception:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:  # closed before this process started: `>&-`
                stream.flush()
    os._exit(code or 0)
