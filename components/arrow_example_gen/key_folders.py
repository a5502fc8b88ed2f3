"""Folders named `key=value` as columns, as Hive, Spark and pandas write them.

A key whose values are all plain decimal integers is an int column, as in `pyarrow.dataset`: an
optional minus sign and ASCII digits, so that `01` is 1. Python's `int()` would also read `1_2`,
` 5` and digits of other scripts.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import unquote

FolderKeys = tuple[tuple[str, int | str | None], ...]
"""Key and value of each folder on a file's path, the outermost first."""

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)


def folder_keys(files: Sequence[str], folders: Sequence[str]) -> dict[str, FolderKeys]:
    """Return the keys and values of each file's folders: ints if all values of a key are.

    Args:
        files: Paths.
        folders: Where they were found. Of each file the deepest one that it lies below counts.

    Raises:
        ValueError: A path names a key twice, or two files have different keys.
    """
    texts = {file: _texts(file, folders) for file in files}
    first = texts[files[0]]
    for file, found in texts.items():
        if list(found) != list(first):
            raise ValueError(
                f"{file}: its folders name {', '.join(found) or 'no keys'}, and those of "
                f"{files[0]} {', '.join(first) or 'none'}. All files need the same keys."
            )
    ints = {
        name
        for name in first
        if all(found[name] is None or _is_int(found[name]) for found in texts.values())
    }
    return {
        file: tuple(
            (name, int(value) if name in ints and value is not None else value)
            for name, value in found.items()
        )
        for file, found in texts.items()
    }


def _texts(file: str, folders: Sequence[str]) -> dict[str, str | None]:
    above = [each for each in folders if file.startswith(f"{each.rstrip('/')}/")]
    folder = max(above or folders, key=len)
    below = os.path.dirname(os.path.relpath(file, folder)) if folder else ""
    parts = [part.partition("=") for part in below.split(os.sep) if "=" in part]
    pairs = [
        (unquote(name), None if text == _MISSING else unquote(text)) for name, _, text in parts
    ]
    repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if repeated:
        raise ValueError(
            f"{file}: two of its folders are named {repeated[0]}=...; both would be the column "
            f"{repeated[0]!r}. Rename one."
        )
    return dict(pairs)


def _is_int(text: str | None) -> bool:
    return text is not None and bool(_INTEGER.fullmatch(text)) and int(text) in _INT64
