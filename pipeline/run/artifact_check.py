"""Keep results whose files are missing out of ML Metadata and TFX's cache.

Artifacts that are missing, empty or incomplete are neither cached nor used as a baseline (TFX
ignores artifacts that are not live) until they are restored. Folders that the metadata does not
contain would be written into, so they are moved away.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.report.records import PUSHED_DESTINATION, open_store
from shared_core.atomic_files import atomic_write

if TYPE_CHECKING:
    from ml_metadata import MetadataStore


# TFX's cache checks only an artifact's folder, which still exists when its files are missing. So a
# list of paths and sizes for each artifact is in this folder, next to the artifacts.
_LISTS = ".files"


def check_artifacts(folder: str, metadata: Path) -> list[str]:
    """Correct the metadata of `output.folder`; return a sentence for each change to report.

    Unknown artifacts are moved away. The SQLite file of ML Metadata may be missing.
    """
    root = Path(folder, "artifacts")
    store = open_store(metadata, writable=True) if metadata.is_file() else None
    said = [] if store is None else _correct(store, root)
    last = 0 if store is None else max((each.id for each in store.get_executions()), default=0)
    return said + _set_aside(root, last)


def record_artifacts(folder: str, metadata: Path) -> None:
    """Write the file lists of artifacts that have none: those of the run that just ended."""
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    if not metadata.is_file():
        return
    root = Path(folder, "artifacts")
    for artifact in open_store(metadata, writable=True).get_artifacts():
        if artifact.state == mlmd.Artifact.LIVE and "://" not in artifact.uri:
            path = Path(artifact.uri)
            file = _list_file(path, root)
            if path.exists() and not file.exists():
                with atomic_write(file) as stream:
                    json.dump(_sizes(path), stream)


def _correct(store: MetadataStore, root: Path) -> list[str]:
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    changed, gone = [], Counter()
    for artifact in store.get_artifacts():
        if artifact.state not in (mlmd.Artifact.LIVE, mlmd.Artifact.DELETED):
            continue
        whole = "://" in artifact.uri or _is_whole(artifact.uri, root)
        if whole and PUSHED_DESTINATION in artifact.custom_properties:
            pushed = artifact.custom_properties[PUSHED_DESTINATION].string_value
            if "://" not in pushed:  # a copy, which may have more files
                whole = _sizes(Path(artifact.uri)).items() <= _sizes(Path(pushed)).items()
        state = mlmd.Artifact.LIVE if whole else mlmd.Artifact.DELETED
        if artifact.state != state:
            if not whole:
                gone[Path(artifact.uri).parts[-3]] += 1
            artifact.state = state
            changed.append(artifact)
    if changed:
        store.put_artifacts(changed)
    if not gone:
        return []
    return [
        "files of earlier results are missing: these nodes run again if their result is needed "
        f"({', '.join(sorted(gone))})"
    ]


def _set_aside(root: Path, last: int) -> list[str]:
    """Move artifacts of unknown executions away: the next executions would get their numbers."""
    found = [
        path
        for path in root.glob("[!.]*/[!.]*/*")
        if path.name.isdecimal() and int(path.name) > last
    ]
    if not found:
        return []
    aside = root.parent / "artifacts_without_metadata" / time.strftime("%Y%m%d-%H%M%S")
    for path in found:
        target = aside / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        node, output, execution = path.parts[-3:]
        (root / _LISTS / f"{node}.{output}.{execution}.json").unlink(missing_ok=True)
    return [
        f"{len(found)} artifacts in {root} are not in the metadata: they were moved to "
        f"{aside}; delete them if you do not need them"
    ]


def _is_whole(uri: str, root: Path) -> bool:
    """Return whether all files of an artifact exist; without a list, whether any file exists."""
    path = Path(uri)
    if not path.exists():
        return False
    try:
        listed = json.loads(_list_file(path, root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return path.is_file() or bool(_sizes(path))
    return _sizes(path) == listed


def _list_file(artifact: Path, root: Path) -> Path:
    """Return the list's path in the artifact's root; a metadata store may have several roots."""
    node, output, execution = artifact.parts[-3:]
    root = artifact.parents[2] if len(artifact.parts) > 3 else root
    return root / _LISTS / f"{node}.{output}.{execution}.json"


def _sizes(path: Path) -> dict[str, int]:
    """Return the size in bytes of each file below a folder; for a file, its size under `.`."""
    return {
        file.relative_to(path).as_posix(): file.stat().st_size
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file()
    }
