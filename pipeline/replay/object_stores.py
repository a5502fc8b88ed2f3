"""List objects by a prefix of their names, as Kubeflow's launcher does.

In a replay, a folder of this machine replaces a bucket, and lists files the same way.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from pipeline.common.errors import ConfigError

REPLAY_LOG = "log.txt"
"""A file of the replay's own beside a task's artifacts: no object."""


class ObjectStore(Protocol):
    """A store of artifacts."""

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the URI of each object whose URI begins with the prefix."""
        ...

    def download(self, uri: str, path: Path) -> None:
        """Write an object to a file of this machine."""
        ...

    def upload(self, path: Path, uri: str) -> None:
        """Write a file of this machine to an object."""
        ...


class Folder:
    """A store of files of this machine; their paths are their URIs."""

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the path of each file whose path begins with the prefix."""
        start = Path(prefix)
        if not start.parent.is_dir():
            return
        for entry in sorted(start.parent.iterdir()):
            if entry.name.startswith(start.name) and entry.name != REPLAY_LOG:
                inside = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
                yield from (str(path) for path in inside if path.is_file())

    def download(self, uri: str, path: Path) -> None:
        """Copy the file."""
        shutil.copyfile(uri, path)

    def upload(self, path: Path, uri: str) -> None:
        """Copy the file."""
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, uri)


class S3:
    """The store of `s3://`, with the endpoint and the keys of AWS' variables."""

    def __init__(self) -> None:
        """Create the client, which connects at the first request."""
        import boto3  # from the extra s3

        self._client = boto3.client("s3")

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the URI of each object."""
        bucket, key = _bucket_and_key(prefix)
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
        for page in pages:
            yield from (f"s3://{bucket}/{each['Key']}" for each in page.get("Contents", []))

    def download(self, uri: str, path: Path) -> None:
        """Download the object."""
        self._client.download_file(*_bucket_and_key(uri), str(path))

    def upload(self, path: Path, uri: str) -> None:
        """Upload the file."""
        self._client.upload_file(str(path), *_bucket_and_key(uri))


class GoogleStorage:
    """The store of `gs://`, with Google's default credentials."""

    def __init__(self) -> None:
        """Create the client, which connects at the first request."""
        from google.cloud import storage

        self._client = storage.Client()

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the URI of each object, including directory markers."""
        bucket, key = _bucket_and_key(prefix)
        for blob in self._client.list_blobs(bucket, prefix=key):
            yield f"gs://{bucket}/{blob.name}"

    def download(self, uri: str, path: Path) -> None:
        """Download the object."""
        bucket, key = _bucket_and_key(uri)
        self._client.bucket(bucket).blob(key).download_to_filename(str(path))

    def upload(self, path: Path, uri: str) -> None:
        """Upload the file."""
        bucket, key = _bucket_and_key(uri)
        self._client.bucket(bucket).blob(key).upload_from_filename(str(path))


def object_store(root: str) -> ObjectStore:
    """Return the store of a place: `s3://...`, `gs://...` or a folder of this machine.

    Raises:
        ConfigError: The place has another scheme.
    """
    if root.startswith("s3://"):
        return S3()
    if root.startswith("gs://"):
        return GoogleStorage()
    if "://" in root:
        raise ConfigError(
            f"--remote: the pipeline root is {root}, and a replay knows s3://, gs:// and folders; "
            "write minio:// as s3://, with AWS_ENDPOINT_URL, or leave --remote out."
        )
    return Folder()


def _bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key
