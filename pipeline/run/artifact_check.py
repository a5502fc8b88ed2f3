"""Let ML Metadata and TFX's cache follow an output folder that was moved or partly deleted.

Before a run, paths are updated if a folder was moved or copied. Artifacts that are missing, empty
or incomplete are neither cached nor used as a baseline (TFX ignores artifacts that are not live)
until they are restored. Folders that the metadata does not contain would be written into, so they
are moved away.

TFX's keys hash an input artifact with its absolute path and its modification time, and a node's
parameters with the folder that models are pushed to. `keys_without_places` leaves these out:
otherwise, a moved folder would be trained again.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.common.artifact_places import Places
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
    places = Places.of(folder, metadata)
    store = open_store(metadata, writable=True) if metadata.is_file() else None
    said = [] if store is None else _correct(store, places)
    last = 0 if store is None else max((each.id for each in store.get_executions()), default=0)
    return said + _set_aside(places, last)


def record_artifacts(folder: str, metadata: Path) -> None:
    """Write the file lists of artifacts that have none: those of the run that just ended."""
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    if not metadata.is_file():
        return
    places = Places.of(folder, metadata)
    for artifact in open_store(metadata, writable=True).get_artifacts():
        if artifact.state == mlmd.Artifact.LIVE and "://" not in artifact.uri:
            path = Path(artifact.uri)
            file = _list_file(path, places)
            if path.exists() and not file.exists():
                with atomic_write(file) as stream:
                    json.dump(_sizes(path), stream)


def _correct(store: MetadataStore, places: Places) -> list[str]:
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    changed, moved, gone = [], 0, Counter()
    for artifact in store.get_artifacts():
        if artifact.state not in (mlmd.Artifact.LIVE, mlmd.Artifact.DELETED):
            continue
        before = artifact.SerializeToString(deterministic=True)
        uri = places.artifact(artifact.uri)
        moved += uri != artifact.uri
        whole = "://" in uri or _is_whole(uri, places)
        if PUSHED_DESTINATION in artifact.custom_properties:
            pushed = artifact.custom_properties[PUSHED_DESTINATION]
            pushed.string_value = places.beside(pushed.string_value, artifact.uri)
            if whole and "://" not in pushed.string_value:  # a copy, which may have more files
                whole = _sizes(Path(uri)).items() <= _sizes(Path(pushed.string_value)).items()
        artifact.uri = uri
        if not whole and artifact.state == mlmd.Artifact.LIVE:
            gone[Path(uri).parts[-3]] += 1
        artifact.state = mlmd.Artifact.LIVE if whole else mlmd.Artifact.DELETED
        if artifact.SerializeToString(deterministic=True) != before:
            changed.append(artifact)
    if changed:
        store.put_artifacts(changed)
    said = []
    if moved:
        said.append(f"the output folder was moved or copied: its artifacts are in {places.root}")
    if gone:
        said.append(
            "files of earlier results are missing: these nodes run again if their result is needed "
            f"({', '.join(sorted(gone))})"
        )
    return said


def _set_aside(places: Places, last: int) -> list[str]:
    """Move artifacts of unknown executions away: the next executions would get their numbers."""
    found = [
        path
        for path in places.root.glob("[!.]*/[!.]*/*")
        if path.name.isdecimal() and int(path.name) > last
    ]
    if not found:
        return []
    aside = places.folder / "artifacts_without_metadata" / time.strftime("%Y%m%d-%H%M%S")
    for path in found:
        target = aside / path.relative_to(places.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        node, output, execution = path.parts[-3:]
        (places.root / _LISTS / f"{node}.{output}.{execution}.json").unlink(missing_ok=True)
    return [
        f"{len(found)} artifacts in {places.root} are not in the metadata: they were moved to "
        f"{aside}; delete them if you do not need them"
    ]


def _is_whole(uri: str, places: Places) -> bool:
    """Return whether all files of an artifact exist; without a list, whether any file exists."""
    path = Path(uri)
    if not path.exists():
        return False
    try:
        listed = json.loads(_list_file(path, places).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return path.is_file() or bool(_sizes(path))
    return _sizes(path) == listed


def _list_file(artifact: Path, places: Places) -> Path:
    """Return the list's path in the artifact's root; a metadata store may have several roots."""
    node, output, execution = artifact.parts[-3:]
    root = artifact.parents[2] if len(artifact.parts) > 3 else places.root
    return root / _LISTS / f"{node}.{output}.{execution}.json"


def _sizes(path: Path) -> dict[str, int]:
    """Return the size in bytes of each file below a folder; for a file, its size under `.`."""
    return {
        file.relative_to(path).as_posix(): file.stat().st_size
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file()
    }


@contextlib.contextmanager
def keys_without_places(folder: str) -> Iterator[None]:
    """Exclude the output folder from the launcher's cache keys during the block.

    Args:
        folder: `output.folder`, absolute.
    """
    from tfx.orchestration.portable import cache_utils

    original = cache_utils.get_cache_context

    def get_cache_context(*, input_artifacts: Any, parameters: Any, **others: Any) -> Any:
        return original(
            input_artifacts={
                key: [_without_place(artifact) for artifact in artifacts]
                for key, artifacts in (input_artifacts or {}).items()
            },
            parameters={
                key: value.replace(folder, "{output.folder}") if isinstance(value, str) else value
                for key, value in (parameters or {}).items()
            },
            **others,
        )

    cache_utils.get_cache_context = get_cache_context
    try:
        yield
    finally:
        cache_utils.get_cache_context = original


def _without_place(artifact: Any) -> Any:
    copied = copy.deepcopy(artifact)
    copied.uri = ""
    copied.mlmd_artifact.ClearField("last_update_time_since_epoch")
    return copied
