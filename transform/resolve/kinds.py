"""Which types of columns each kind of group takes."""

from __future__ import annotations

from transform.columns.types import Multivalued, SeenType, describe
from transform.spec.common import ColumnType
from transform.spec.group import Group

_NUMBERS: tuple[ColumnType, ...] = ("float", "int")
_CATEGORIES: tuple[ColumnType, ...] = ("string", "int")
_TAKES: dict[str, tuple[ColumnType, ...]] = {
    "z_score": _NUMBERS,
    "z_score_by_key": _NUMBERS,
    "min_max": _NUMBERS,
    "robust": _NUMBERS,
    "gaussian": _NUMBERS,
    "log1p": _NUMBERS,
    "none": _NUMBERS,
    "bucketize": _NUMBERS,
    "integer": _NUMBERS,  # whole ones: what pandas writes for ints beside a missing value
    "vocabulary": _CATEGORIES,
    "hash": _CATEGORIES,
    "one_hot": _CATEGORIES,
    "multi_hot": _CATEGORIES,
    "date": _CATEGORIES,
}
TEXT_KINDS = frozenset({"vocabulary", "hash", "one_hot"})  # read as text, whatever their type

_SCALES = "scale: z_score | min_max | robust | gaussian | log1p | none"
_FITS: dict[str, str] = {
    "float": f"{_SCALES}, or encode: bucketize, or integer where every value is whole",
    "int": "any scale, or encode: integer | vocabulary | bucketize | hash | one_hot | date (epoch)",
    "string": "encode: vocabulary | hash | one_hot | date (ISO 8601)",
}


def check_type(group: Group, name: str, seen: SeenType) -> None:
    """Raises ValueError unless the group takes columns of this type."""
    takes = _TAKES[group.kind]
    if group.length is not None:
        _check_list(group, name, seen)
        return
    if isinstance(seen, Multivalued) and group.kind == "multi_hot" and seen.type in takes:
        return
    if seen not in takes:
        raise ValueError(
            f"group {group.name!r}: column {name!r} is {describe(seen)}, and {step_of(group)} "
            f"takes {' or '.join(takes)}; what fits it: {_fits(seen)}"
        )


def _check_list(group: Group, name: str, seen: SeenType) -> None:
    """A list whose storage does not tell its length is checked when its rows come."""
    where = f"group {group.name!r}: column {name!r} is {describe(seen)}, and length: {group.length}"
    single = seen.type if isinstance(seen, Multivalued) else seen
    if single not in _NUMBERS:
        raise ValueError(f"{where} takes lists of numbers; derive them, or remove length")
    if isinstance(seen, Multivalued) and seen.most not in (None, group.length):
        raise ValueError(
            f"{where} takes a list of {group.length} values, or none, in each row; use length: "
            f"{seen.most} if all rows have as many"
        )


def step_of(group: Group) -> str:
    """The group's main step as its YAML has it."""
    if group.encode is not None:
        return f"encode: {group.kind}"
    return f"scale: z_score by {group.by!r}" if group.by is not None else f"scale: {group.kind}"


def _fits(seen: SeenType) -> str:
    single = "one value per row; derive columns from it, or leave it out"
    if isinstance(seen, Multivalued):
        options = ["encode: multi_hot"] if seen.type in _CATEGORIES else []
        if seen.type in _NUMBERS:
            options.append("length: n with a scale, where all lists have n values")
        return ", or ".join([*options, single])
    return _FITS.get(seen, single)
