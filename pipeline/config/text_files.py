"""Text files that a user names: read as UTF-8, or an error that says why not."""

from __future__ import annotations

from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.common.nearest_file import did_you_mean


def read_text(file: Path, *, where: str, what: str, hint: str) -> str:
    """Returns what a file holds, without a byte order mark.

    Args:
        file: its path.
        where: which setting or argument names it.
        what: what it is: "the configuration".
        hint: what to do where there is none.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"{where}: cannot read {what} ({error.strerror}). {did_you_mean(file)}{hint}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot read {what} ({error.strerror}). {hint}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{where}: {what} is not UTF-8 (byte {error.start}). Save it as UTF-8."
        ) from None
