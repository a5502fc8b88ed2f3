"""Write the file that `--output` names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from pipeline.common.errors import ConfigError
from shared_core.atomic_files import atomic_write, would_replace


def check_output(path: Path, *, force: bool) -> None:
    """Raise ConfigError if writing would replace an existing file, unless `force`."""
    if would_replace(path) and not force:
        raise ConfigError(f"--output={path}: exists. Name another file, or add --force.")


@contextlib.contextmanager
def output_file(path: Path, *, newline: str | None = None) -> Iterator[TextIO]:
    """Yield a stream whose content replaces the file when the block ends without error."""
    try:
        with atomic_write(path, newline=newline) as stream:
            yield stream
    except OSError as error:
        raise ConfigError(f"--output={path}: cannot write it ({error.strerror}).") from None
