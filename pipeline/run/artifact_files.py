"""Check that an artifact is complete: its files are those that the node wrote.

A list of paths and sizes for each artifact is in `.files`, next to the artifacts. TFX's cache
checks only the artifact's folder, which still exists when its files are missing.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.common.artifact_places import Places
from shared_core.atomic_files import atomic_write

LISTS = ".files"


def is_whole(uri: str, places: Places) -> bool:
    """Return whether all files of an artifact exist; without a list, whether any file exists."""
    path = Path(uri)
    if not path.exists():
        return False
    try:
        listed = json.loads(_list_file(path, places).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return path.is_file() or bool(_sizes(path))
    return _sizes(path) == listed


def holds_files_of(copied: str, uri: str) -> bool:
    """Return whether a copy of an artifact has all its files; it may have more."""
    if "://" in copied:
        return True
    return _sizes(Path(uri)).items() <= _sizes(Path(copied)).items()


def list_files(uri: str, places: Places) -> None:
    """Write the file list of an artifact that its node has just finished, unless it exists."""
    path = Path(uri)
    file = _list_file(path, places)
    if not path.exists() or file.exists():
        return
    with atomic_write(file) as stream:
        json.dump(_sizes(path), stream)


def _list_file(artifact: Path, places: Places) -> Path:
    """Return the list's path in the artifact's root; a metadata store may have several roots."""
    node, output, execution = artifact.parts[-3:]
    root = artifact.parents[2] if len(artifact.parts) > 3 else places.root
    return root / LISTS / f"{node}.{output}.{execution}.json"


def _sizes(path: Path) -> dict[str, int]:
    """Return the size in bytes of each file below a folder; for a file, its size under `.`."""
    return {
        file.relative_to(path).as_posix(): file.stat().st_size
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file()
    }
