"""Dicts, lists and tuples of outputs, within each other: what is where, by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_module.common.tensors import Tensors

Path = tuple[Any, ...]


def is_nested(structure: Tensors) -> bool:
    """Returns whether it is a dict, a list or a tuple."""
    return isinstance(structure, (Mapping, list, tuple))


def leaves(structure: Tensors, path: Path = ()) -> dict[Path, Any]:
    """Returns what is no dict, list or tuple, by path; () alone for a single thing."""
    if not is_nested(structure):
        return {path: structure}
    return {
        place: leaf
        for key, part in _items(structure)
        for place, leaf in leaves(part, (*path, key)).items()
    }


def at(structure: Tensors, path: Path) -> Any:
    """Returns the part at a path.

    Raises:
        KeyError: There is none; its argument says what is there instead.
    """
    for key in path:
        if not is_nested(structure):
            raise KeyError("are not a dict or a list")
        parts = dict(_items(structure))
        if key not in parts:
            raise KeyError("have " + ", ".join(map(repr, parts)))
        structure = parts[key]
    return structure


def only(structure: Tensors) -> Any:
    """Returns the single tensor of a structure of one, as Keras takes it; others as they are."""
    if not is_nested(structure):
        return structure
    found = list(leaves(structure).values())
    # A list of one number is no structure of one tensor.
    return found[0] if len(found) == 1 and getattr(found[0], "shape", ()) else structure


def part_at(structure: Tensors, path: Path, what: str, *, of: str) -> Any:
    """Returns the part of labels, outputs or weights that belongs to an output.

    Args:
        structure: Them; weights that are no structure are those of all outputs.
        path: Of the output.
        what: How they are called in a message.
        of: What has the output, for the message: "the loss".

    Raises:
        ValueError: They have no such part.
    """
    if what == "sample_weight" and not is_nested(structure):
        return structure
    try:
        return at(structure, path)
    except KeyError as error:
        raise ValueError(
            f"{of} has an output {path_name(path)!r}, but {what} {error.args[0]}: the losses, the "
            "labels and the model's outputs need the same keys, and so do weights if they are a "
            "dict or a list."
        ) from None


def path_name(path: Path) -> str:
    """Returns how an output is called: `a`, `a/0`."""
    return "/".join(map(str, path))


def _items(structure: Tensors) -> list[tuple[Any, Any]]:
    return list(structure.items() if isinstance(structure, Mapping) else enumerate(structure))
