"""The end of a process whose C++ libraries abort it when it is taken down in order."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn


def end_process(code: object) -> NoReturn:
    """Ends this process at once with an exit code, after Python's own exit functions.

    Threads in C++ that still wait (for a job server that died, or tensorflow-io's for S3) abort a
    process that is taken down in order, and its exit code is then that of a signal.

    Args:
        code: as of SystemExit: None is 0, a text is printed and is 1.
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
