"""End a process without its C++ libraries' cleanup, which may abort it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn


def end_process(code: object) -> NoReturn:
    """End this process at once with an exit code, after Python's exit functions.

    In a normal exit, C++ threads that still wait (for a dead job server, or tensorflow-io's for
    S3) abort the process, and the exit code is that of a signal.

    Args:
        code: As for SystemExit: None is 0; a text is printed and is 1.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:  # closed before this process started: `>&-`
                stream.flush()
    os._exit(code or 0)
