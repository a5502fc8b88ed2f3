"""What the columns of a group become: the names of Transform's output, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transform.layout import PACKED_FLOAT, PACKED_INT, PACKED_MISSING
from transform.spec.cross import Cross
from transform.spec.encoders import Date, MultiHot
from transform.spec.features import FeatureSpec
from transform.spec.group import Group

INDICATOR_SUFFIX = "_missing"
OTHER_SUFFIX = "_other"
CYCLIC_SUFFIXES = ("_sin", "_cos")


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
    group: str


def output_columns(resolved: ResolvedGroup) -> tuple[OutputColumn, ...]:
    """What the group's columns become, in order; missing indicators come last."""
    group = resolved.group
    sources = resolved.columns
    if group.length is not None:
        sources = tuple(each for name in sources for each in positions(name, group.length))
    indicators = tuple(
        OutputColumn(name + INDICATOR_SUFFIX, name, "missing_indicator", group.name)
        for name in sources
    )
    endings = [""]
    kind = group.kind
    with_indicators = group.missing_indicator
    if group.encode is not None:
        if group.encode.one_hot is not None:
            endings = [*(f"={value}" for value in group.encode.one_hot.values), OTHER_SUFFIX]
        elif group.encode.multi_hot is not None:
            endings = [*multi_hot_endings(group.encode.multi_hot), OTHER_SUFFIX]
        elif group.encode.date is not None:
            endings = date_endings(group.encode.date)
            kind = "cyclic" if group.encode.date.cyclic else "date"
        with_indicators = kind in ("one_hot", "multi_hot")
    columns = tuple(
        OutputColumn(name + ending, name, kind, group.name)
        for name in sources
        for ending in endings
    )
    return (*columns, *indicators) if with_indicators else columns


def positions(name: str, length: int) -> tuple[str, ...]:
    """The columns that a list of fixed length becomes: `vector_0`, `vector_1`, ..."""
    return tuple(f"{name}_{i}" for i in range(length))


def multi_hot_endings(option: MultiHot) -> list[str]:
    """A listed value as `=value`; a learned one as `#rank`, until the layout knows the value."""
    if option.values is not None:
        return [f"={value}" for value in option.values]
    return [f"#{rank}" for rank in range(option.top_k or 0)]


def date_endings(option: Date) -> list[str]:
    """`_hour`, or `_hour_sin` and `_hour_cos`."""
    suffixes = CYCLIC_SUFFIXES if option.cyclic else ("",)
    return [f"_{part}{suffix}" for part in option.parts for suffix in suffixes]


def cross_column(cross: Cross) -> OutputColumn:
    """The ids of a cross."""
    return OutputColumn(cross.name, " x ".join(cross.columns), cross.encode.kind, cross.name)


def all_output_columns(
    spec: FeatureSpec, groups: Sequence[ResolvedGroup]
) -> tuple[OutputColumn, ...]:
    """Those of every group, then the crosses: the order of the packed outputs."""
    columns = [column for resolved in groups for column in output_columns(resolved)]
    return (*columns, *map(cross_column, spec.crosses))


def check_output_names(spec: FeatureSpec, groups: Sequence[ResolvedGroup]) -> None:
    """Raises ValueError where two of columns, packed outputs, label and weight have one name."""
    packed = (PACKED_FLOAT, PACKED_INT, PACKED_MISSING) if spec.packed else ()
    owner: dict[str, str] = dict.fromkeys(packed, "an output of this spec")
    targets = [(spec.label.column, "the label")] if spec.label is not None else []
    targets += [(spec.weight, "the weight")] if spec.weight is not None else []
    targets += [(name, "passthrough") for name in spec.passthrough]
    crosses = {cross.name for cross in spec.crosses}
    for column in all_output_columns(spec, groups):
        role = f"in group {column.group!r}"
        if column.group in crosses:
            role = "a cross"
        elif column.kind == "missing_indicator":
            role = f"the missing indicator of {column.source!r}"
        elif column.name != column.source:
            role = f"made by {column.kind} of {column.source!r}"
        targets.append((column.name, role))
    for name, role in targets:
        if name in owner:
            raise ValueError(
                f"column {name!r} is {owner[name]} and {role}; each output needs its own name, "
                "rename the column or remove one of the two"
            )
        owner[name] = role
