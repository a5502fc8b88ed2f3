"""Read text files of a user as UTF-8, with an error message if that fails."""

from __future__ import annotations

from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.common.nearest_file import did_you_mean


def read_text(file: Path, *, where: str, what: str, hint: str) -> str:
    """Return the text of a file, without a byte order mark.

    Args:
        file: Path of the file.
        where: The setting or argument that names it, for the message.
        what: What the file is, for the message: "the configuration".
        hint: What to do if it does not exist, for the message.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8.
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
