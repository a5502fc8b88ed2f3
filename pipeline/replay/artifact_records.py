"""Records of the artifacts of replays on this machine; they replace a platform's metadata store."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import Artifact

_CONDITION = re.compile(r'^(?P<path>[\w.]+)=(?P<value>"[^"]*"|[\w.]+)$')


class ArtifactRecords:
    """A file of JSON lines, one artifact per line, latest last."""

    def __init__(self, path: Path) -> None:
        """Set the path of the file, which need not exist."""
        self._path = path

    def add(self, artifact: Artifact) -> None:
        """Append an artifact: name, uri, type and metadata in ExecutorInput's format."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(artifact) + "\n")

    def latest(self, query: str) -> JsonObject | None:
        """Return the latest artifact that matches a resolver's filter, or None.

        Args:
            query: Conditions in the format of Vertex' metadata service, joined by AND:
                `schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1`.

        Raises:
            ValueError: A condition has another form.
        """
        conditions = [_condition(part) for part in query.split(" AND ")]
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in reversed(lines):
            artifact = json.loads(line)
            if all(_is(artifact, path, value) for path, value in conditions):
                return artifact
        return None


def title_of(artifact: Artifact) -> str:
    """Return the name of the artifact's type, such as `tfx.Model`."""
    kind = artifact.get("type", {})
    if "schemaTitle" in kind:
        return kind["schemaTitle"]
    return (yaml.safe_load(kind.get("instanceSchema", "")) or {}).get("title", "")


def _condition(text: str) -> tuple[str, Any]:
    found = _CONDITION.match(text.strip())
    if not found:
        raise ValueError(f"the resolver's condition {text!r} is of no form that is known here.")
    return found["path"], json.loads(found["value"]) if found["value"] != "LIVE" else "LIVE"


def _is(artifact: Artifact, path: str, value: JsonValue) -> bool:
    if path == "state":
        return value == "LIVE"
    if path == "schema_title":
        return title_of(artifact) == value
    node: JsonValue = artifact
    for step in path.split("."):
        if step in ("number_value", "string_value"):
            break
        node = node.get(step) if isinstance(node, Mapping) else None
    return node == value
