"""Access parts of nested dicts, lists and tuples of outputs by path."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_module.common.tensors import Tensors

Path = tuple[str | int, ...]


def is_nested(structure: Tensors) -> bool:
    """Return whether a structure is a dict, a list or a tuple."""
    return isinstance(structure, (Mapping, list, tuple))


def leaves(structure: Tensors, path: Path = ()) -> dict[Path, Tensors]:
    """Return the leaves of a structure by path; the path of a single value is ()."""
    if not is_nested(structure):
        return {path: structure}
    return {
        place: leaf
        for key, part in _items(structure)
        for place, leaf in leaves(part, (*path, key)).items()
    }


def at(structure: Tensors, path: Path) -> Tensors:
    """Return the part of a structure at a path.

    Raises:
        KeyError: There is no such part; the argument of the error describes what exists instead.
    """
    for key in path:
        if not is_nested(structure):
            raise KeyError("are not a dict or a list")
        parts = dict(_items(structure))
        if key not in parts:
            raise KeyError("have " + ", ".join(map(repr, parts)))
        structure = parts[key]
    return structure


def only(structure: Tensors) -> Tensors:
    """Return the tensor of a structure with a single tensor, as Keras does; else the structure."""
    if not is_nested(structure):
        return structure
    found = list(leaves(structure).values())
    # A list with one number is not a structure with one tensor.
    return found[0] if len(found) == 1 and getattr(found[0], "shape", ()) else structure


def part_at(structure: Tensors, path: Path, what: str, *, of: str) -> Tensors:
    """Return the part of labels, outputs or weights that belongs to an output.

    Args:
        structure: Labels, outputs or weights. A single tensor of weights applies to all outputs.
        path: Path of the output.
        what: Name of the structure in error messages; "sample_weight" for weights.
        of: The object that has the output, in error messages, such as "the loss".

    Raises:
        ValueError: The structure has no such part.
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
    """Return the name of an output at a path, such as `a` or `a/0`."""
    return "/".join(map(str, path))


def _items(structure: Tensors) -> list[tuple[str | int, Tensors]]:
    return list(structure.items() if isinstance(structure, Mapping) else enumerate(structure))
