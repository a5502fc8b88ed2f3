"""Whether label, weight and passthrough columns are there, and of a type that their use takes."""

from __future__ import annotations

from shared_core.nearest import nearest_column
from transform.columns.types import SeenType, SeenTypes, describe
from transform.spec.features import FeatureSpec, Label


def check_targets(spec: FeatureSpec, types: SeenTypes) -> None:
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


def reserved_columns(spec: FeatureSpec) -> frozenset[str]:
    """Return columns that no pattern may take: targets and passthrough."""
    names = set(spec.passthrough)
    if spec.label is not None:
        names |= {spec.label.column, *spec.label.sources}
    if spec.weight is not None:
        names.add(spec.weight)
    return frozenset(names)
