"""Files of this machine that are whole or not there, whenever the process is killed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

_MODE = 0o644


@contextlib.contextmanager
def whole_file(path: Path, *, newline: str | None = None) -> Iterator[TextIO]:
    """Opens a text file (UTF-8) that takes the place of `path` when the block ends without error.

    Until then a reader sees the file as it was, or none. Several writers may write at once: the
    last one to end stays. What a kill leaves is a file `.<name>.<random>` beside it.

    Args:
        path: the file; its folder is made.
        newline: as of `open`; "" for the csv module.

    Raises:
        OSError: it cannot be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", newline=newline, encoding="utf-8") as stream:
            yield stream
        os.chmod(partial, _MODE)  # mkstemp's is for its owner alone
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
