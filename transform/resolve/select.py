"""Which columns each group takes, and whether it can take them: names and types only.

The same resolution runs on a TFDV schema before anything starts (`check_spec`) and on
the tensors that `preprocessing_fn` gets, so that both give the same answer and the same error.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

from shared_core.nearest import nearest_column
from transform.columns.types import Multivalued, ResolvedGroup, SeenTypes, describe, positions
from transform.resolve.kinds import check_type, takes_lists
from transform.resolve.output_columns import check_output_names
from transform.resolve.targets import check_targets, reserved_columns
from transform.spec.common import OTHERS, is_glob
from transform.spec.cross import Cross
from transform.spec.features import FeatureSpec
from transform.spec.group import Group


def resolve(spec: FeatureSpec, types: SeenTypes) -> tuple[ResolvedGroup, ...]:
    """Return the columns of each group: names first, then globs, then `dtype`, then `others`.

    What is a column's name is no glob, whatever its characters: `v[0]` takes `v[0]`, and `v0` only
    where no column has that name. `v[[]0]` is a glob for the first alone (as `fnmatch` has it).

    Args:
        spec: the spec.
        types: every column of the data, derived ones included, with its type (`column_types`).

    Returns:
        One entry per group, in the spec's order.

    Raises:
        ValueError: see `check_spec`.
    """
    check_targets(spec, types)
    reserved = reserved_columns(spec)
    taken = _explicit_columns(spec, types, reserved)
    columns: dict[str, tuple[str, ...]] = {}
    for matches in (_by_glob, _by_dtype, _by_others):
        for group in spec.groups:
            if group.name not in columns and (chosen := matches(group, types, taken, reserved)):
                columns[group.name] = chosen
                for name in chosen:
                    taken[name] = group.name
    resolved = []
    for group in spec.groups:
        chosen = columns.get(group.name, _named(group, types))
        if not chosen:
            raise ValueError(
                f"group {group.name!r} matches no column: columns={list(group.columns)}, "
                f"dtype={group.dtype}; every column of the data is in another group, a target, "
                "or of another type. Change or remove the group."
            )
        for name in chosen:
            check_type(group, name, types[name])
            _check_positions(group, name, types)
        _check_key(group, chosen, types, reserved)
        _check_shared(group, chosen, types)
        resolved.append(ResolvedGroup(group, chosen))
    for cross in spec.crosses:
        _check_cross(cross, types, resolved, reserved)
    check_output_names(spec, resolved)
    return tuple(resolved)


def _is_pattern(entry: str, types: SeenTypes) -> bool:
    return is_glob(entry) and entry not in types


def _named(group: Group, types: SeenTypes) -> tuple[str, ...]:
    """Return the entries of `columns` that are names."""
    return tuple(n for n in group.columns if n != OTHERS and not _is_pattern(n, types))


def _explicit_columns(
    spec: FeatureSpec, types: SeenTypes, reserved: frozenset[str]
) -> dict[str, str]:
    taken: dict[str, str] = {}
    for group in spec.groups:
        for name in _named(group, types):
            if name not in types:
                raise ValueError(
                    f"group {group.name!r}: column {name!r} is not in the data; "
                    f"{nearest_column(name, types, but=reserved)}"
                )
            # Of a name without wildcards, the spec itself has asked this already.
            if name in taken and is_glob(name):
                raise ValueError(
                    f"column {name!r} is in group {taken[name]!r} and again in group "
                    f"{group.name!r}; a column belongs to one group, remove it from one"
                )
            if name in reserved and is_glob(name):
                raise ValueError(
                    f"column {name!r} is a target or passed through, and also in group "
                    f"{group.name!r}; remove it from one"
                )
            taken[name] = group.name
    return taken


def _by_glob(
    group: Group, types: SeenTypes, taken: Mapping[str, str], reserved: frozenset[str]
) -> tuple[str, ...] | None:
    if not any(_is_pattern(entry, types) for entry in group.columns):
        return None
    chosen: dict[str, None] = {}
    for pattern in group.columns:
        if not _is_pattern(pattern, types):
            chosen[pattern] = None
            continue
        matched = [n for n in types if n not in reserved and fnmatch.fnmatchcase(n, pattern)]
        matched = [n for n in _kept(group, matched, types) if taken.get(n) in (None, group.name)]
        if not matched:
            raise ValueError(
                f"group {group.name!r}: pattern {pattern!r} matches no column that is free; "
                f"{nearest_column(pattern.strip('*?'), types, but=reserved)}"
            )
        chosen.update(dict.fromkeys(matched))
    return tuple(chosen)


def _by_dtype(
    group: Group, types: SeenTypes, taken: Mapping[str, str], reserved: frozenset[str]
) -> tuple[str, ...] | None:
    if group.columns:
        return None
    left = [n for n in types if n not in reserved and n not in taken]
    return tuple(_kept(group, left, types))


def _by_others(
    group: Group, types: SeenTypes, taken: Mapping[str, str], reserved: frozenset[str]
) -> tuple[str, ...] | None:
    if OTHERS not in group.columns:
        return None
    left = [n for n in types if n not in reserved and n not in taken]
    return tuple(_kept(group, left, types))


def _kept(group: Group, names: Iterable[str], types: SeenTypes) -> list[str]:
    """Return `names` without the `exclude` of the group, and of its `dtype` if it has one."""

    def of_dtype(name: str) -> bool:
        seen = types[name]
        if isinstance(seen, Multivalued) and takes_lists(group):
            seen = seen.type
        return group.dtype is None or seen == group.dtype

    return [
        name
        for name in names
        if not any(_matches(name, pattern, types) for pattern in group.exclude) and of_dtype(name)
    ]


def _matches(name: str, pattern: str, types: SeenTypes) -> bool:
    if pattern in types:
        return name == pattern
    return fnmatch.fnmatchcase(name, pattern)


def _check_positions(group: Group, name: str, types: SeenTypes) -> None:
    for each in positions(name, group.length or 0):
        if each in types:
            raise ValueError(
                f"group {group.name!r}: column {name!r} with length: {group.length} becomes a "
                f"column {each!r}, which the data has already; rename one"
            )


def _check_key(
    group: Group, columns: Sequence[str], types: SeenTypes, reserved: frozenset[str]
) -> None:
    if group.by is None:
        return
    where = f"group {group.name!r}: scale.z_score.by={group.by!r}"
    if group.by not in types:
        raise ValueError(
            f"{where} is not in the data; {nearest_column(group.by, types, but=reserved)}"
        )
    if types[group.by] not in ("string", "int"):
        raise ValueError(f"{where} is {describe(types[group.by])}; use a string or int column")
    if group.by in columns:
        raise ValueError(
            f"{where} is among the columns to scale, where every value would be 0; exclude it"
        )


def _check_shared(group: Group, columns: Sequence[str], types: SeenTypes) -> None:
    if not group.share:
        return
    where = f"group {group.name!r}: share: true"
    if len(columns) == 1:
        raise ValueError(
            f"{where} needs several columns, and the group has {columns[0]!r} alone; add the "
            "columns that have the same values, or remove share"
        )
    texts = [name for name in columns if types[name] == "string"]
    numbers = [name for name in columns if name not in texts]
    if texts and numbers:
        raise ValueError(
            f"{where} takes columns of one type, and {texts[0]!r} is string, {numbers[0]!r} is "
            f"{describe(types[numbers[0]])}; derive a column of the other type, or use two groups"
        )


def _check_cross(
    cross: Cross,
    types: SeenTypes,
    groups: Sequence[ResolvedGroup],
    reserved: frozenset[str],
) -> None:
    bucketized = {
        name for g in groups if g.group.kind == "bucketize" for name in g.columns
    }  # fmt: skip
    if cross.source in types:
        raise ValueError(
            f"cross {cross.name!r} is shown as {cross.source!r}, which is a column of the data; "
            "rename that column"
        )
    for name in cross.columns:
        where = f"cross {cross.name!r}: column {name!r}"
        if _is_pattern(name, types):
            raise ValueError(f"{where} is not in the data, and no pattern here; name each column")
        if name not in types:
            raise ValueError(
                f"{where} is not in the data; {nearest_column(name, types, but=reserved)}"
            )
        if types[name] in ("string", "int"):
            continue
        if types[name] != "float":
            raise ValueError(
                f"{where} is {describe(types[name])}, and a cross takes one value per row; derive "
                "a column from it, or leave it out"
            )
        if name not in bucketized:
            raise ValueError(
                f"{where} is of type float, which crosses by its bucket; put it into a group with "
                "encode: {bucketize: {buckets: n}}"
            )
        if cross.encode.vocabulary is not None:
            raise ValueError(
                f"{where} is of type float, whose buckets the one pass over the data learns "
                "together with a vocabulary; use encode: {hash: {buckets: n}}"
            )
