"""A folder of Parquet or Arrow files as one table: the files that belong to it, and their pattern.

As in Spark and `pyarrow.dataset`, names that begin with `.` or `_` (`_SUCCESS`, `_temporary`) are
excluded, but a folder `_key=value` is not.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from components.arrow_example_gen.spans import escape
from pipeline.common.errors import ConfigError
from pipeline.common.sources import COLUMNAR, SUFFIXES, Source


def source_of_folder(folder: Path) -> Source:
    """Return the format of the files in a folder or below it; Parquet if there are none."""
    found = {SUFFIXES.get(file.suffix.lower()) for file in _visible(folder)}
    present: list[Source] = [source for source in COLUMNAR if source in found]
    return present[0] if present else "parquet"


def pattern_below(folder: Path, path: str, field: str, source: Source) -> str:
    """Return the pattern of a format's files in a folder, or in folders below it.

    Args:
        folder: A local folder.
        path: The path that the user wrote, for messages.
        field: The field of the path, for messages.
        source: Format of the files.

    Raises:
        ConfigError: There is no such file, or the files are at different depths.
    """
    endings = [ending for ending, of in SUFFIXES.items() if of == source]
    found = sorted(file for file in _visible(folder) if file.suffix.lower() in endings)
    names = sorted({f"*{file.suffix}" for file in found})
    if not found:
        raise ConfigError(
            f"{field}={path}: {folder} is a folder without "
            f"{' or '.join(f'*{ending}' for ending in endings)} files, in it or below it. "
            "Name the files in it."
        )
    if len(names) > 1:
        raise ConfigError(
            f"{field}={path}: {folder} has {' and '.join(names)} files. Give all the same ending."
        )
    levels = _levels(found[0], folder)
    for file in found:
        if _levels(file, folder) != levels:
            raise ConfigError(
                f"{field}={path}: the folders of {file} differ from those of {found[0]}. All files "
                "of a table need the same depth and the same key=value folders. Move it, or name "
                f"the files by a glob, {folder}/*/*{file.suffix}."
            )
    for star in ("*", "[!_]*"):
        parts = [each if each.endswith("=*") else star for each in levels]
        pattern = "/".join([*parts, star + found[0].suffix])
        matched = set(glob.glob(f"{escape(str(folder))}/{pattern}"))
        more = sorted(matched - set(map(str, found)))
        if not more:
            return pattern
    raise ConfigError(
        f"{field}={path}: {more[0]} is not a file, or is reached by a link. Remove it, or name "
        "the files by a glob."
    )


def _visible(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (Path(place, name) for name in files if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _levels(file: Path, folder: Path) -> list[str]:
    """Return the folders on a file's path as parts of a pattern."""
    parts = file.relative_to(folder).parts[:-1]
    return [f"{glob.escape(part.partition('=')[0])}=*" if "=" in part else "*" for part in parts]
