"""Records of the artifacts of replays on this machine; they replace a platform's metadata store."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.targets.spec_types import Artifact

_CONDITION = re.compile(r'([\w.]+)=("[^"]*"|[\w.]+)')


class ArtifactRecords:
    """A file of JSON lines, one artifact per line, latest last."""

    def __init__(self, path: Path) -> None:
        """Set the path of the file, which need not exist."""
        self._path = path

    def add(self, artifact: Artifact) -> None:
        """Append an artifact: name, uri, type and metadata in ExecutorInput's format."""
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(artifact) + "\n")

    def latest(self, query: str) -> JsonObject | None:
        """Return the latest artifact that matches a resolver's filter, or None.

        Args:
            query: Conditions in the format of Vertex' metadata service, joined by AND:
                `schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1`.
        """
        conditions = [_CONDITION.fullmatch(part.strip()) for part in query.split(" AND ")]
        if None in conditions:
            raise ValueError(
                f"the resolver's condition {query!r} is of no form that is known here."
            )
        wanted = [(each[1], each[2]) for each in conditions if each and each[2] != "LIVE"]
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for artifact in map(json.loads, reversed(lines)):
            if all(_value(artifact, path) == json.loads(value) for path, value in wanted):
                return artifact
        return None


def _value(artifact: Artifact, path: str) -> JsonValue:
    if path == "schema_title":
        kind = artifact.get("type", {})
        schema = yaml.safe_load(kind.get("instanceSchema", "")) or {}
        return kind.get("schemaTitle") or schema.get("title", "")
    node: JsonValue = artifact
    for step in path.removesuffix(".number_value").removesuffix(".string_value").split("."):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node
