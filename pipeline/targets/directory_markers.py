"""Remove the empty objects that TensorFlow writes for folders on Google Cloud Storage.

TensorFlow's `makedirs("gs://bucket/a")` writes an object `a/` of 0 bytes. Kubeflow's launcher
downloads each input artifact object by object before a container starts. It writes `a/` as a file
`a`, and then fails at the next object below it with `mkdir a: not a directory`
(kubeflow/pipelines#13476; `DownloadBlob` in backend/src/v2/objectstore/object_store.go, 2.0 to
2.17). No folder needs its marker: on Google Cloud Storage a folder exists as long as an object is
below it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.targets.spec_types import ExecutorInput

if TYPE_CHECKING:
    from google.cloud.storage import Client

_SCHEME = "gs://"
# For one request and its retries; the node has finished by then.
_TIMEOUT_SECONDS = 30.0


@contextlib.contextmanager
def directory_markers_removed(executor_input: ExecutorInput) -> Iterator[None]:
    """Run a node, then remove the markers below its outputs on `gs://`, also after a failure."""
    try:
        yield
    finally:
        _remove_directory_markers(_output_uris(executor_input))


def _output_uris(executor_input: ExecutorInput) -> list[str]:
    """Return the places of a node's output artifacts without duplicates."""
    outputs = executor_input.get("outputs", {}).get("artifacts", {})
    uris = [a.get("uri", "") for found in outputs.values() for a in found.get("artifacts", [])]
    return list(dict.fromkeys(uris))


def _remove_directory_markers(uris: list[str]) -> None:
    """Delete the objects of 0 bytes below `gs://` places whose names end with a slash.

    Never raises. The node has written all its outputs, and an error would discard them because of
    a permission or a network that only the removal needs. A warning names the remaining objects. A
    platform that downloads no inputs, such as Vertex, never sees the markers.
    """
    places = [uri for uri in uris if uri.startswith(_SCHEME)]
    if not places:
        return
    try:
        # Takes seconds to import, and other nodes do not need it. Like TensorFlow, it uses Google's
        # default credentials.
        from google.cloud import storage

        client = storage.Client()
    except Exception as error:
        _warn(", ".join(places), error)
        return
    for place in places:
        try:
            _remove_below(client, place)
        except Exception as error:
            _warn(place, error)


def _remove_below(client: Client, uri: str) -> None:
    from google.api_core.exceptions import NotFound
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _, folder = uri.removeprefix(_SCHEME).partition("/")
    if not folder.strip("/"):
        return  # an artifact is never a whole bucket
    retry = DEFAULT_RETRY.with_timeout(_TIMEOUT_SECONDS)
    # With the slash, so that `model` does not match `model_run`.
    found = client.list_blobs(
        bucket,
        prefix=f"{folder.rstrip('/')}/",
        fields="items(name,size,generation),nextPageToken",
        retry=retry,
        timeout=_TIMEOUT_SECONDS,
    )
    markers = [blob for blob in found if blob.size == 0 and blob.name.endswith("/")]
    for marker in markers:
        with contextlib.suppress(NotFound):  # another worker of the node has removed it
            # Only this generation: an object that is written in the meantime is kept.
            marker.delete(
                if_generation_match=marker.generation, retry=retry, timeout=_TIMEOUT_SECONDS
            )


def _warn(place: str, error: Exception) -> None:
    logging.getLogger(__name__).warning(
        "The empty objects that stand for folders below %s were not removed (%s: %s), so Kubeflow "
        "may fail to download the artifact for another node with `mkdir ...: not a directory`. "
        "Give the node's account the permissions storage.objects.list and storage.objects.delete, "
        "or delete the objects there whose names end with a slash.",
        place,
        type(error).__name__,
        error,
    )
