"""The name of this program and shell quoting, for commands that messages suggest."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_CONSOLE_SCRIPT = "tfx-largebatch"


def program() -> str:
    """Return `tfx-largebatch` if the process was started so, else `python -m pipeline`."""
    started = Path(sys.argv[0]).name if sys.argv else ""
    return _CONSOLE_SCRIPT if started == _CONSOLE_SCRIPT else "python -m pipeline"


def shell_argument(value: str | Path) -> str:
    """Return a file's name for a shell: quoted, and not taken for an option."""
    text = str(value)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
