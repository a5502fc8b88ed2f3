"""What the columns of a group become: the names of Transform's output, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared_core.feature_layout import PACKED_FLOAT, PACKED_INT, PACKED_MISSING
from transform.encode.encoder import option_of
from transform.encode.table import ENCODERS
from transform.scale.scaler import ValidationRule
from transform.scale.table import SCALERS
from transform.spec.common import INDICATOR_SUFFIX, positions
from transform.spec.features import Cross, FeatureSpec
from transform.spec.group import ResolvedGroup

_INDICATOR = "missing_indicator"


@dataclass(frozen=True)
class OutputColumn:
    """A column of Transform's output, and the column that it comes from; see `Column`."""

    name: str
    source: str
    kind: str
    group: str
    validation_rule: ValidationRule | None = None
    is_aspect: bool = False
    shared_ids: str | None = None


def output_columns(resolved: ResolvedGroup) -> tuple[OutputColumn, ...]:
    """Return the group's output columns, in order; missing indicators come last."""
    group = resolved.group
    sources = resolved.columns
    if group.length is not None:
        sources = tuple(each for name in sources for each in positions(name, group.length))
    endings, kind, has_indicator = [""], group.kind, group.missing_indicator
    rule, is_aspect = None, False
    kinds = [kind]
    if group.encode is None:
        rule = SCALERS[kind].validation_rule
    else:
        encoder, option = ENCODERS[kind], option_of(resolved)
        endings, has_indicator = encoder.endings(option), encoder.has_indicator
        kinds = [
            encoder.kind_of(option, ending) if encoder.kind_of is not None else kind
            for ending in endings
        ]
        is_aspect = encoder.is_aspect
    shared = group.name if group.share else None
    columns = tuple(
        OutputColumn(name + ending, name, each, group.name, rule, is_aspect, shared)
        for name in sources
        for ending, each in zip(endings, kinds, strict=True)
    )
    indicators = tuple(
        OutputColumn(name + INDICATOR_SUFFIX, name, _INDICATOR, group.name, is_aspect=True)
        for name in sources
    )
    return (*columns, *indicators) if has_indicator else columns


def _cross_column(cross: Cross) -> OutputColumn:
    """Return the ids of a cross."""
    return OutputColumn(cross.name, cross.source, cross.encode.kind, cross.name)


def all_output_columns(
    spec: FeatureSpec, groups: Sequence[ResolvedGroup]
) -> tuple[OutputColumn, ...]:
    """Return those of every group, then the crosses: the order of the packed outputs."""
    columns = [column for resolved in groups for column in output_columns(resolved)]
    return (*columns, *map(_cross_column, spec.crosses))


def check_output_names(spec: FeatureSpec, groups: Sequence[ResolvedGroup]) -> None:
    """Raise ValueError where two of columns, packed outputs, label and weight have one name."""
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
        elif column.kind == _INDICATOR:
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
