"""Which columns each group takes, and whether it can take them: names and types only.

The same resolution runs on a TFDV schema before anything starts (`check_spec`, which also asks the
schema's domains) and on the tensors that `preprocessing_fn` gets, so that both give the same answer
and the same error. The types that a group takes are those of its encoder's or scaler's record.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shared_core.nearest import nearest_column
from transform.columns.derive import derived_types
from transform.encode.encoder import option_of
from transform.encode.table import ENCODERS
from transform.resolve.output_columns import check_output_names
from transform.scale.table import SCALERS
from transform.spec.common import (
    OTHERS,
    ColumnType,
    Multivalued,
    SeenType,
    SeenTypes,
    column_types,
    describe,
    is_glob,
    positions,
)
from transform.spec.features import Cross, FeatureSpec, Label
from transform.spec.group import Group, ResolvedGroup

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

_LISTING = ("one_hot", "multi_hot")  # a listed value outside the domain is a column of zeros


def check_spec(spec: FeatureSpec, schema: schema_pb2.Schema) -> tuple[ResolvedGroup, ...]:
    """Raise ValueError unless the spec fits data of this TFDV schema.

    With `derive`, the function is traced on placeholders (this imports TensorFlow) to learn which
    columns it makes.

    Args:
        spec: The `features:` section.
        schema: What is known of the raw columns.

    Returns:
        The columns of each group.

    Raises:
        ValueError: A column that the data lacks, one of a type that its group cannot take, one with
            several values per row, one in two groups, a pattern without a match; a listed value
            outside the schema's domain; or `derive` cannot be imported or fails.
    """
    types = column_types(schema)
    if spec.derive is not None:
        types = {**types, **derived_types(spec.derive, schema)}
    groups = resolve(spec, types)
    domains = _closed_domains(schema)
    for resolved in groups:
        if resolved.group.kind in _LISTING:
            for name in resolved.columns:
                _check_listed(resolved, name, domains.get(name))
    return groups


def _closed_domains(schema: schema_pb2.Schema) -> dict[str, range | list[str]]:
    """Return column -> its ints or texts, of the columns that can have no other.

    A domain that need not hold all values (`distribution_constraints.min_domain_mass` below 1)
    is none in this sense.
    """
    shared = {domain.name: domain for domain in schema.string_domain}
    domains: dict[str, range | list[str]] = {}
    for feature in schema.feature:
        constraints = feature.distribution_constraints
        if feature.HasField("distribution_constraints") and constraints.min_domain_mass < 1.0:
            continue
        if feature.HasField("int_domain"):
            if feature.int_domain.max:  # 0: no upper bound is given
                domains[feature.name] = range(feature.int_domain.min, feature.int_domain.max + 1)
        elif values := shared.get(feature.domain, feature.string_domain).value:
            domains[feature.name] = list(values)
    return domains


def _check_listed(resolved: ResolvedGroup, name: str, domain: range | list[str] | None) -> None:
    for value in option_of(resolved).values or ():
        if isinstance(domain, range):
            is_known = value.lstrip("-").isdigit() and int(value) in domain
            fix = f"use an int of {domain.start}..{domain.stop - 1}"
        else:
            is_known = domain is None or value in domain
            fix = nearest_column(value, domain or ())
        if not is_known:
            raise ValueError(
                f"group {resolved.group.name!r}: column {name!r}: value {value!r} is not in the "
                f"schema's domain; {fix}"
            )


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
    _check_targets(spec, types)
    reserved = _reserved_columns(spec)
    taken = _explicit_columns(spec, types, reserved)
    columns: dict[str, tuple[str, ...]] = {}
    for takes in (
        lambda group: any(_is_pattern(entry, types) for entry in group.columns),
        lambda group: not group.columns,  # by `dtype`
        lambda group: OTHERS in group.columns,
    ):
        for group in filter(takes, spec.groups):
            left = [n for n in types if n not in reserved and taken.get(n) in (None, group.name)]
            columns[group.name] = _matching(group, left, types, reserved)
            taken.update(dict.fromkeys(columns[group.name], group.name))
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
            _check_type(group, name, types[name])
            _check_positions(group, name, types)
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


def _matching(
    group: Group, left: Sequence[str], types: SeenTypes, reserved: frozenset[str]
) -> tuple[str, ...]:
    """Return the columns of a group by its names and globs, or all that are `left`."""
    if not group.columns or OTHERS in group.columns:
        return tuple(_kept(group, left, types))
    chosen: dict[str, None] = {}
    for pattern in group.columns:
        if not _is_pattern(pattern, types):
            chosen[pattern] = None
            continue
        matched = _kept(group, [n for n in left if fnmatch.fnmatchcase(n, pattern)], types)
        if not matched:
            raise ValueError(
                f"group {group.name!r}: pattern {pattern!r} matches no column that is free; "
                f"{nearest_column(pattern.strip('*?'), types, but=reserved)}"
            )
        chosen.update(dict.fromkeys(matched))
    return tuple(chosen)


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


_NUMBERS: tuple[ColumnType, ...] = ("float", "int")


def _check_type(group: Group, name: str, seen: SeenType) -> None:
    """Raise ValueError unless the group takes columns of this type."""
    if group.length is not None:
        _check_list(group, name, seen)
        return
    takes = SCALERS[group.kind].takes if group.encode is None else (*ENCODERS[group.kind].takes,)
    if isinstance(seen, Multivalued) and takes_lists(group) and seen.type in takes:
        return
    if seen not in takes:
        raise ValueError(
            f"group {group.name!r}: column {name!r} is {describe(seen)}, and {step_of(group)} "
            f"takes {' or '.join(takes)}; what fits it: {_fits(seen)}"
        )


def takes_lists(group: Group) -> bool:
    """Whether the columns may hold several values in a row."""
    in_encoder = group.encode is not None and ENCODERS[group.kind].reads == "lists"
    return in_encoder or group.length is not None


def reads_texts(group: Group, seen: SeenType) -> bool:
    """Whether a column is read as text, whatever its type; of a group that takes no lists."""
    if group.encode is None:
        return False
    reads = ENCODERS[group.kind].reads
    return reads == "texts" or (reads == "own type" and seen == "string")


def step_of(group: Group) -> str:
    """Return the group's main step as its YAML has it."""
    return f"{'scale' if group.encode is None else 'encode'}: {group.kind}"


def _check_list(group: Group, name: str, seen: SeenType) -> None:
    """Check a list whose length is known; that of another one is checked when its rows come."""
    where = f"group {group.name!r}: column {name!r} is {describe(seen)}, and length: {group.length}"
    single = seen.type if isinstance(seen, Multivalued) else seen
    if single not in _NUMBERS:
        raise ValueError(f"{where} takes lists of numbers; derive them, or remove length")
    if isinstance(seen, Multivalued) and seen.most not in (None, group.length):
        raise ValueError(
            f"{where} takes a list of {group.length} values, or none, in each row; use length: "
            f"{seen.most} if all rows have as many"
        )


def _fits(seen: SeenType) -> str:
    """Say what a column of this type can be put into."""
    single = "one value per row; derive columns from it, or leave it out"
    if isinstance(seen, Multivalued):
        encoders = _encoders_for(seen.type, lists=True)
        options = [f"encode: {' | '.join(encoders)}"] if encoders else []
        if seen.type in _NUMBERS:
            options.append("length: n with a scale, where all lists have n values")
        return ", or ".join([*options, single])
    scalers = [s.name for s in SCALERS.values() if seen in s.takes and s.first is None]
    encoders = _encoders_for(seen, lists=False)
    options = [f"scale: {' | '.join(scalers)}"] if scalers else []
    options += [f"encode: {' | '.join(encoders)}"] if encoders else []
    return ", or ".join(options) or single


def _encoders_for(seen: SeenType, *, lists: bool) -> list[str]:
    found = []
    for encoder in ENCODERS.values():
        for takes, note in encoder.takes.items():
            if takes == seen and (encoder.reads == "lists") == lists:
                found.append(f"{encoder.name} ({note})" if note else encoder.name)
    return found


def _check_targets(spec: FeatureSpec, types: SeenTypes) -> None:
    """Raise ValueError where one is not in the data, or cannot be used."""
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
            # The label itself may be misspelt; nothing else is probably meant to be the label.
            but = () if field == "label.column" or spec.label is None else (spec.label.column,)
            near = nearest_column(name, types, but=but)
            raise ValueError(f"features.{field}={name!r} is not in the data; {near}{hint}")
    if spec.label is not None:
        _check_label_type(spec.label, types[spec.label.column])
    if spec.weight is not None and types[spec.weight] not in ("float", "int"):
        raise ValueError(f"weight {spec.weight!r} is {describe(types[spec.weight])}; use a number")


def _check_label_type(label: Label, kind: SeenType) -> None:
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
            f"label {label.column!r} is {describe(kind)}, which kind: {label.kind} cannot "
            f"take; {fix}"
        )
    positive = label.positive if kind == "string" else label.positive_number
    if positive is not None and (kind == "string") != isinstance(positive, str):
        raise ValueError(
            f"label.positive={label.positive!r} is never equal to a value of {label.column!r}, "
            f"{describe(kind)}; write it {'in quotes' if kind == 'string' else 'as a number'}"
        )


def _reserved_columns(spec: FeatureSpec) -> frozenset[str]:
    """Return columns that no pattern may take: targets and passthrough."""
    names = set(spec.passthrough)
    if spec.label is not None:
        names |= {spec.label.column, *spec.label.sources}
    if spec.weight is not None:
        names.add(spec.weight)
    return frozenset(names)
