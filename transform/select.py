"""Which columns each group takes, and whether it can take them: names and types only.

The same resolution runs on a TFDV schema before anything starts (`FeatureSpec.check`) and on
the tensors that `preprocessing_fn` gets, so that both give the same answer and the same error.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transform.layout import PACKED_FLOAT, PACKED_INT, PACKED_MISSING
from transform.spec import OTHERS, ColumnType, FeatureSpec, Group, Label, is_glob

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

INDICATOR_SUFFIX = "_missing"
OTHER_SUFFIX = "_other"

# What each kind of group takes, and where to send the types that it does not take.
_TAKES: dict[str, tuple[ColumnType, ...]] = {
    "z_score": ("float", "int"),
    "min_max": ("float", "int"),
    "robust": ("float", "int"),
    "log1p": ("float", "int"),
    "none": ("float", "int"),
    "bucketize": ("float", "int"),
    "integer": ("int",),
    "vocabulary": ("string", "int"),
    "hash": ("string", "int"),
    "one_hot": ("string", "int"),
}
TEXT_KINDS = frozenset(kind for kind, takes in _TAKES.items() if "string" in takes)
_FITS: dict[ColumnType, str] = {
    "float": "scale: z_score | min_max | robust | log1p | none, or encode: bucketize",
    "int": "any scale, or encode: integer | vocabulary | bucketize | hash | one_hot",
    "string": "encode: vocabulary | hash | one_hot",
}


@dataclass(frozen=True)
class ResolvedGroup:
    """A group and the columns that it takes, in order."""

    group: Group
    columns: tuple[str, ...]


@dataclass(frozen=True)
class OutputColumn:
    """A column of Transform's output, and the column that it comes from."""

    name: str
    source: str
    kind: str


def output_columns(resolved: ResolvedGroup) -> tuple[OutputColumn, ...]:
    """What the group's columns become, in order; missing indicators come last."""
    group = resolved.group
    indicators = tuple(
        OutputColumn(name + INDICATOR_SUFFIX, name, "missing_indicator")
        for name in resolved.columns
    )
    if group.encode is not None and group.encode.one_hot is not None:
        endings = [*(f"={value}" for value in group.encode.one_hot.values), OTHER_SUFFIX]
        hot = [OutputColumn(n + e, n, group.kind) for n in resolved.columns for e in endings]
        return (*hot, *indicators)
    columns = tuple(OutputColumn(name, name, group.kind) for name in resolved.columns)
    return (*columns, *indicators) if group.missing_indicator else columns


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence that offers the closest of `choices` to a misspelt `name`."""
    choices = sorted(choices)
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    shown = ", ".join(choices[:20]) + (", ..." if len(choices) > 20 else "")
    return f"the data has: {shown or 'no columns'}"


def column_types(schema: schema_pb2.Schema) -> dict[str, ColumnType | str]:
    """Column name -> type in a TFDV schema; other than a `ColumnType`: why it cannot be used."""
    from tensorflow_metadata.proto.v0 import schema_pb2 as pb

    names: dict[int, ColumnType] = {pb.BYTES: "string", pb.INT: "int", pb.FLOAT: "float"}
    types: dict[str, ColumnType | str] = {}
    for feature in schema.feature:
        sizes = [dim.size for dim in feature.shape.dim]
        width = 1
        for size in sizes:
            width *= size
        if feature.type not in names:
            types[feature.name] = "a column that is neither float, int nor string"
        elif width > 1 or feature.value_count.max > 1:
            count = width if width > 1 else feature.value_count.max
            types[feature.name] = f"a column of up to {count} values per row"
        else:
            types[feature.name] = names[feature.type]
    return types


def resolve(spec: FeatureSpec, types: Mapping[str, ColumnType | str]) -> tuple[ResolvedGroup, ...]:
    """The columns of each group: names first, then globs, then `dtype`, then `others`.

    Args:
        spec: the spec.
        types: every column of the data, derived ones included, with its type (`column_types`).

    Returns:
        One entry per group, in the spec's order.

    Raises:
        ValueError: see `FeatureSpec.check`.
    """
    _check_targets(spec, types)
    taken = _explicit_columns(spec, types)
    reserved = _reserved(spec)
    columns: dict[str, tuple[str, ...]] = {}
    for matches in (_by_glob, _by_dtype, _by_others):
        for group in spec.groups:
            if group.name not in columns and (chosen := matches(group, types, taken, reserved)):
                columns[group.name] = chosen
                for name in chosen:
                    taken[name] = group.name
    resolved = []
    for group in spec.groups:
        chosen = columns.get(group.name, group.explicit)
        if not chosen:
            raise ValueError(
                f"group {group.name!r} matches no column: columns={list(group.columns)}, "
                f"dtype={group.dtype}; every column of the data is in another group, a target, "
                "or of another type. Change or remove the group."
            )
        for name in chosen:
            _check_type(group, name, types[name])
        resolved.append(ResolvedGroup(group, chosen))
    _check_output_names(spec, resolved)
    return tuple(resolved)


def _check_targets(spec: FeatureSpec, types: Mapping[str, ColumnType | str]) -> None:
    wanted: list[tuple[str, str]] = []
    if spec.label is not None:
        wanted.append(("label.column", spec.label.column))
        wanted += [("label.sources", source) for source in spec.label.sources]
    if spec.weight is not None:
        wanted.append(("weight", spec.weight))
    wanted += [("passthrough", name) for name in spec.passthrough]
    for field, name in wanted:
        if name not in types:
            hint = (
                ""
                if spec.derive or not field.startswith("label")
                else (" A column that is computed from others needs features.derive.")
            )
            raise ValueError(
                f"features.{field}={name!r} is not in the data; {nearest(name, types)}{hint}"
            )
    if spec.label is not None:
        _check_label_type(spec.label, types[spec.label.column])
    if spec.weight is not None and types[spec.weight] not in ("float", "int"):
        raise ValueError(f"weight {spec.weight!r} is {_describe(types[spec.weight])}; use a number")


def _check_label_type(label: Label, kind: str) -> None:
    accepts = {
        "binary": ("float", "int") if label.positive is None else ("float", "int", "string"),
        "multiclass": ("int", "string"),
        "regression": ("float", "int"),
    }[label.kind]
    if kind not in accepts:
        fix = (
            "name the value that counts as 1 in label.positive"
            if label.kind == "binary" and kind == "string"
            else f"use a column of type {' or '.join(accepts)}"
        )
        raise ValueError(
            f"label {label.column!r} is {_describe(kind)}, which kind: {label.kind} cannot "
            f"take; {fix}"
        )
    if label.positive is not None and (kind == "string") != isinstance(label.positive, str):
        raise ValueError(
            f"label.positive={label.positive!r} is never equal to a value of {label.column!r}, "
            f"{_describe(kind)}; write it {'in quotes' if kind == 'string' else 'as a number'}"
        )


def _explicit_columns(spec: FeatureSpec, types: Mapping[str, ColumnType | str]) -> dict[str, str]:
    taken: dict[str, str] = {}
    for group in spec.groups:
        for name in group.explicit:
            if name not in types:
                raise ValueError(
                    f"group {group.name!r}: column {name!r} is not in the data; "
                    f"{nearest(name, types)}"
                )
            taken[name] = group.name
    return taken


def _reserved(spec: FeatureSpec) -> frozenset[str]:
    """Columns that no pattern may take: targets and passthrough."""
    names = set(spec.passthrough)
    if spec.label is not None:
        names |= {spec.label.column, *spec.label.sources}
    if spec.weight is not None:
        names.add(spec.weight)
    return frozenset(names)


def _by_glob(
    group: Group,
    types: Mapping[str, ColumnType | str],
    taken: Mapping[str, str],
    reserved: frozenset[str],
) -> tuple[str, ...] | None:
    if not any(is_glob(pattern) for pattern in group.columns):
        return None
    chosen: dict[str, None] = {}
    for pattern in group.columns:
        if not is_glob(pattern):
            chosen[pattern] = None
            continue
        matched = [n for n in types if n not in reserved and fnmatch.fnmatchcase(n, pattern)]
        matched = [n for n in _kept(group, matched, types) if taken.get(n) in (None, group.name)]
        if not matched:
            raise ValueError(
                f"group {group.name!r}: pattern {pattern!r} matches no column that is free; "
                f"{nearest(pattern.strip('*?'), types)}"
            )
        chosen.update(dict.fromkeys(matched))
    return tuple(chosen)


def _by_dtype(
    group: Group,
    types: Mapping[str, ColumnType | str],
    taken: Mapping[str, str],
    reserved: frozenset[str],
) -> tuple[str, ...] | None:
    if group.columns:
        return None
    left = [n for n in types if n not in reserved and n not in taken]
    return tuple(_kept(group, left, types))


def _by_others(
    group: Group,
    types: Mapping[str, ColumnType | str],
    taken: Mapping[str, str],
    reserved: frozenset[str],
) -> tuple[str, ...] | None:
    if OTHERS not in group.columns:
        return None
    left = [n for n in types if n not in reserved and n not in taken]
    return tuple(_kept(group, left, types))


def _kept(group: Group, names: Iterable[str], types: Mapping[str, ColumnType | str]) -> list[str]:
    """`names` less the group's `exclude`, and of its `dtype` where it has one."""
    return [
        name
        for name in names
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in group.exclude)
        and (group.dtype is None or types[name] == group.dtype)
    ]


def _check_type(group: Group, name: str, kind: str) -> None:
    takes = _TAKES[group.kind]
    if kind not in takes:
        step = f"encode: {group.kind}" if group.encode is not None else f"scale: {group.kind}"
        fits = _FITS.get(kind) or (  # type: ignore[call-overload]
            "one value per row; derive columns from it, or leave it out"
        )
        raise ValueError(
            f"group {group.name!r}: column {name!r} is {_describe(kind)}, and {step} takes "
            f"{' or '.join(takes)}; what fits it: {fits}"
        )


def _describe(kind: str) -> str:
    return f"of type {kind}" if kind in _FITS else kind


def _check_output_names(spec: FeatureSpec, groups: Iterable[ResolvedGroup]) -> None:
    """Output names are unique: columns, indicators, packed outputs, label, weight."""
    packed = (PACKED_FLOAT, PACKED_INT, PACKED_MISSING) if spec.packed else ()
    owner: dict[str, str] = dict.fromkeys(packed, "an output of this spec")
    targets = [(spec.label.column, "the label")] if spec.label is not None else []
    targets += [(spec.weight, "the weight")] if spec.weight is not None else []
    targets += [(name, "passthrough") for name in spec.passthrough]
    for resolved in groups:
        for column in output_columns(resolved):
            role = f"in group {resolved.group.name!r}"
            if column.kind == "missing_indicator":
                role = f"the missing indicator of {column.source!r}"
            elif column.kind == "one_hot":
                role = f"made by one_hot of {column.source!r}"
            targets.append((column.name, role))
    for name, role in targets:
        if name in owner:
            raise ValueError(
                f"column {name!r} is {owner[name]} and {role}; each output needs its own name, "
                "rename the column or remove one of the two"
            )
        owner[name] = role
