"""What differs between two runs: settings, rows, versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from pipeline.common.json_types import JsonValue
from pipeline.report.run_record import RunRecord

DEFAULT = "default"
"""What is shown for a field that a configuration does not set."""

_PLACES = ("output.folder",)
"""Fields that change no result."""


class Change(NamedTuple):
    """A value that differs; `name` is the field of the YAML, or what else it is."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The change in one line, as `training.epochs: 10 → 20`."""
        return f"{self.name}: {self.before} → {self.after}"


def changes(before: RunRecord, after: RunRecord) -> list[Change]:
    """Return the settings that differ, then rows, code and versions."""
    return [
        *_differences(before.settings, after.settings, DEFAULT),
        *_differences({"rows": before.summary["rows"]}, {"rows": after.summary["rows"]}, "none"),
        *_differences(_made_by(before), _made_by(after), "none"),
    ]


def _made_by(record: RunRecord) -> dict[str, JsonValue]:
    found = record.summary.get("made_by") or {}
    return {name: value for name, value in found.items() if name != "command"}


def _differences(before: JsonValue, after: JsonValue, missing: str) -> Iterator[Change]:
    ours, theirs = ({name: _text(v) for name, v in leaves(each)} for each in (before, after))
    for name in [*ours, *(each for each in theirs if each not in ours)]:
        one, other = ours.get(name, missing), theirs.get(name, missing)
        if one != other and name not in _PLACES:
            yield Change(name, one, other)


def leaves(value: JsonValue, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield the dotted name of each value in a document; a list of plain values is one value.

    The parts of a list are named by their field `name` where they have one, so that a group of
    features that was inserted does not shift the others.
    """
    parts: list[tuple[str, JsonValue]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        parts = [
            (str(each.get("name", place)) if isinstance(each, dict) else str(place), each)
            for place, each in enumerate(value)
        ]
    if not parts:
        yield name, value
    for key, each in parts:
        yield from leaves(each, f"{name}.{key}" if name else key)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
