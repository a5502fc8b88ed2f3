"""How Kubeflow's launcher brings an input artifact to the pod's disk, over objects of a fake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def download_as_launcher(objects: Mapping[str, bytes], prefix: str, folder: Path) -> None:
    """Writes each object whose name begins with `prefix` to a file, in the order of a listing.

    As `DownloadBlob` and `downloadFile` do in backend/src/v2/objectstore/object_store.go of
    Kubeflow Pipelines 2.0.0 to 2.16.1: a name is a path below that of the artifact, with a slash at
    its end or without. 2.17.0 leaves out what is not below `prefix` followed by a slash.

    Raises:
        OSError: A file stands where a folder has to be, or the other way round.
    """
    for name in sorted(objects, key=str.encode):
        if not name.startswith(prefix):
            continue
        place = Path(os.path.normpath(folder / os.path.relpath(name, prefix)))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(objects[name])
