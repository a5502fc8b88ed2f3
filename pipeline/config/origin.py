"""The origin of a configuration's values: a line of a file, or an option `--set`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # PipelineConfig loads without the extra `pipeline`
    import yaml

Loc = tuple[int | str, ...]
"""Keys and indices that lead to a field: `("nodes", 0, "class")`."""


class Origin:
    """The file that a configuration was read from.

    All origins are equal, so that configurations are equal independent of their origin.
    """

    def __init__(
        self,
        path: Path | None = None,
        tree: yaml.Node | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        """Create an origin; `tree` has the lines of the file, `overrides` is each `--set`."""
        self._path = path
        self._tree = tree
        self._set_fields = [each.partition("=")[0].strip().split(".") for each in overrides]

    def __eq__(self, other: object) -> bool:
        """Return True for any other origin, because the origin does not change values."""
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        """Return the same hash for all origins, because all are equal."""
        return hash(Origin)

    def prefix(self, loc: Loc) -> str:
        """Return the prefix of a message about a field: `file.yaml:7: `, `--set `, or ""."""
        if self._path is None:
            return ""
        if self._is_set(loc):
            return "--set "
        line = _line_of(self._tree, loc)
        return f"{self._path}{f':{line}' if line else ''}: "

    def _is_set(self, loc: Loc) -> bool:
        """Return whether `--set` gave the value, or created a section that the file lacks."""
        in_file = _find(self._tree, loc) is not None
        keys = [str(part) for part in loc]
        return any(
            keys[: len(field)] == field or (keys == field[: len(keys)] and not in_file)
            for field in self._set_fields
        )


def _find(tree: yaml.Node | None, loc: Loc) -> yaml.Node | None:
    if tree is None:
        return None
    import yaml

    node: Any = tree
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
        else:
            return None
    return node


def _line_of(tree: yaml.Node | None, loc: Loc) -> int | None:
    """Return the line (from 1) of the field, or of the nearest enclosing section in the file."""
    if tree is None:
        return None
    import yaml

    for end in range(len(loc), 0, -1):
        parent = _find(tree, loc[: end - 1])
        if isinstance(parent, yaml.MappingNode):
            for key, _ in parent.value:
                if key.value == str(loc[end - 1]):
                    return key.start_mark.line + 1
        elif (node := _find(tree, loc[:end])) is not None:
            return node.start_mark.line + 1
    return None
