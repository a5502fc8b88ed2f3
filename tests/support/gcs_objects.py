"""The objects of a Google Cloud Storage, and its answers: the JSON API and plain downloads.

Enough of it for TensorFlow's file system, for google-cloud-storage (uploads in one or in parts,
batches, copies) and for the tokens of google.auth.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_PAGE = 1000  # objects of one answer, as GCS
_BATCH = "batch_of_the_fake"


class Answer(NamedTuple):
    """What goes out."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


@dataclass
class StoredObject:
    """The content of an object and its version."""

    content: bytes
    generation: int


@dataclass
class FakeGcs:
    """The objects of all buckets, each of which exists.

    Attributes:
        environment: variables of a process that is to use it.
        objects: (bucket, name) -> content.
        requests: "METHOD /path?query" of all that came in.
        failures: "METHOD /path" -> the status that requests that begin so get.
        page: most objects of one listing's answer.
    """

    environment: dict[str, str] = field(default_factory=dict)
    objects: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    page: int = _PAGE
    _sessions: dict[str, tuple[str, str, bytearray]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _generation: int = 0

    def put(self, bucket: str, name: str, content: bytes = b"") -> StoredObject:
        """Writes an object."""
        with self._lock:
            self._generation += 1
            stored = StoredObject(content, self._generation)
            self.objects[bucket, name] = stored
            return stored

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Returns the names that begin so, in the order of a listing."""
        with self._lock:
            found = [n for b, n in self.objects if b == bucket and n.startswith(prefix)]
        return sorted(found, key=str.encode)

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answers one request of any of Google's hosts; the headers' names are in lower case."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        with self._lock:
            self.requests.append(f"{method} {target}")
            for start, status in self.failures.items():
                if f"{method} {target}".startswith(start):
                    return _error(status)
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            match parts:
                case ["token"] | ["oauth2", _, "token"]:
                    token = {"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}
                    return _json(token)
                case [*_, "allowedLocations"]:  # google.auth asks where the account may be used
                    return _json({"locations": [], "encodedLocations": "0x0"})
                case ["batch", "storage", "v1"]:
                    return self._batch(headers, body)
                case ["storage", "v1", "b", bucket]:
                    return _json({"name": bucket, "location": "EU", "projectNumber": "1"})
                case ["storage", "v1", "b", bucket, "o"]:
                    return self._list(bucket, query)
                case ["storage", "v1", "b", bucket, "o", name]:
                    return self._object(method, bucket, name, query, headers)
                case ["storage", "v1", "b", bucket, "o", name, _, "b", target, "o", new]:
                    return self._copy(bucket, name, target, new)
                case ["upload", "storage", "v1", "b", bucket, "o"]:
                    return self._upload(method, bucket, query, headers, body)
                case ["download", "storage", "v1", "b", bucket, "o", name]:
                    return self._content(bucket, name, headers)
                case [bucket, *rest] if method in ("GET", "HEAD"):
                    return self._content(bucket, "/".join(rest), headers)
        return _error(400)

    def _list(self, bucket: str, query: Mapping[str, str]) -> Answer:
        """Answers a listing by pages, as GCS: `prefixes` stand for what the delimiter cuts off."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        size = min(self.page, int(query.get("maxResults") or _PAGE))
        start = query.get("pageToken", "").encode()
        items: list[dict[str, Any]] = []
        prefixes: dict[str, None] = {}
        for name in self.names(bucket, prefix):
            if start and name.encode() <= start:
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folder = name[: cut + len(delimiter)]
                if start and start.startswith(folder.encode()):
                    continue  # it was on the page before
                prefixes[folder] = None
            else:
                items.append(self._resource(bucket, name))
            if len(items) + len(prefixes) >= size:
                more = {"nextPageToken": name}
                break
        else:
            more = {}
        return _json({"items": items, "prefixes": list(prefixes), **more})

    def _object(
        self,
        method: str,
        bucket: str,
        name: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> Answer:
        stored = self.objects.get((bucket, name))
        expected = query.get("ifGenerationMatch")
        if stored is None:
            return _error(404)
        if expected is not None and int(expected) != stored.generation:
            return _error(412)
        if method == "DELETE":
            del self.objects[bucket, name]
            return Answer(status=204)
        if query.get("alt") == "media":
            return self._content(bucket, name, headers)
        return _json(self._resource(bucket, name))

    def _resource(self, bucket: str, name: str) -> dict[str, Any]:
        stored = self.objects[bucket, name]
        written = "2026-01-01T00:00:00.000Z"
        return {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(stored.content)),
            "generation": str(stored.generation),
            "metageneration": "1",
            "updated": written,
            "timeCreated": written,
        }

    def _content(self, bucket: str, name: str, headers: Mapping[str, str]) -> Answer:
        stored = self.objects.get((bucket, name))
        if stored is None:
            return _error(404)
        first, last = 0, len(stored.content) - 1
        if not (asked := headers.get("range")):
            return Answer(stored.content)
        low, _, high = asked.removeprefix("bytes=").partition("-")
        first, last = int(low), min(int(high or last), last)
        if first > last:
            return Answer(status=416)
        place = {"Content-Range": f"bytes {first}-{last}/{len(stored.content)}"}
        return Answer(stored.content[first : last + 1], 206, place)

    def _copy(self, bucket: str, name: str, target: str, new: str) -> Answer:
        stored = self.objects.get((bucket, name))
        if stored is None:
            return _error(404)
        self.put(target, new, stored.content)
        resource = self._resource(target, new)
        return _json({"done": True, "resource": resource, **resource})

    def _upload(
        self,
        method: str,
        bucket: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        if session := query.get("upload_id"):
            return self._chunk(session, headers, body)
        name = query.get("name", "")
        match query["uploadType"]:
            case "media":
                if query.get("ifGenerationMatch") == "0" and (bucket, name) in self.objects:
                    return _error(412)
                self.put(bucket, name, body)
                return _json(self._resource(bucket, name))
            case "multipart":
                described, content = _parts(headers["content-type"], body)
                name = json.loads(described)["name"]
                self.put(bucket, name, content)
                return _json(self._resource(bucket, name))
        name = name or json.loads(body)["name"]
        session = str(len(self._sessions) + 1)
        self._sessions[session] = bucket, name, bytearray()
        place = (
            f"https://storage.googleapis.com/upload/storage/v1/b/{bucket}/o"
            f"?uploadType=resumable&upload_id={session}"
        )
        return Answer(headers={"Location": place})

    def _chunk(self, session: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Takes a part of a resumable upload: `bytes 0-9/*` is not the last, `bytes 0-9/10` is."""
        bucket, name, content = self._sessions[session]
        content += body
        total = headers.get("content-range", "bytes */0").rpartition("/")[2]
        if total == "*" or int(total) > len(content):
            received = {"Range": f"bytes=0-{len(content) - 1}"} if content else {}
            return Answer(status=308, headers=received)
        self.put(bucket, name, bytes(content))
        return _json(self._resource(bucket, name))

    def _batch(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answers requests that come as one, an `application/http` part for each."""
        lines = []
        for number, part in enumerate(_parts(headers["content-type"], body)):
            head, _, content = part.partition(b"\r\n" if b"\r\n" in part else b"\n")
            method, target, *_ = head.decode().split()
            answer = self.answer(method, target, {}, content.strip())
            lines += [
                f"--{_BATCH}\r\nContent-Type: application/http\r\n"
                f"Content-ID: <response-{number}>\r\n\r\n"
                f"HTTP/1.1 {answer.status} Status\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(answer.body)}\r\n\r\n{answer.body.decode()}\r\n"
            ]
        text = "".join([*lines, f"--{_BATCH}--\r\n"])
        return Answer(
            text.encode(), headers={"Content-Type": f'multipart/mixed; boundary="{_BATCH}"'}
        )


def _json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def _error(status: int) -> Answer:
    body = json.dumps({"error": {"code": status, "message": f"status {status} of the fake"}})
    return Answer(body.encode(), status, {"Content-Type": "application/json"})


def _parts(content_type: str, body: bytes) -> list[bytes]:
    """Returns the contents of a multipart body, without their headers."""
    boundary = content_type.partition("boundary=")[2].strip("\"'").encode()
    found = []
    for part in body.split(b"--" + boundary)[1:-1]:
        part = part.removeprefix(b"\r").removeprefix(b"\n")
        blank = b"\r\n\r\n" if b"\r\n\r\n" in part else b"\n\n"
        content = part.partition(blank)[2]
        found.append(content.removesuffix(b"\n").removesuffix(b"\r"))
    return found
