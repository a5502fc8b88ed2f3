"""Which types of columns each group takes: what its encoder's or scaler's record says."""

from __future__ import annotations

from transform.columns.types import Multivalued, SeenType, describe
from transform.encode.table import ENCODERS
from transform.scale.table import SCALERS
from transform.spec.common import ColumnType
from transform.spec.group import Group

_NUMBERS: tuple[ColumnType, ...] = ("float", "int")


def check_type(group: Group, name: str, seen: SeenType) -> None:
    """Raise ValueError unless the group takes columns of this type."""
    if group.length is not None:
        _check_list(group, name, seen)
        return
    takes = _taken_by(group)
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
    if group.encode is not None:
        return f"encode: {group.kind}"
    return f"scale: z_score by {group.by!r}" if group.by is not None else f"scale: {group.kind}"


def _taken_by(group: Group) -> tuple[ColumnType, ...]:
    if group.encode is not None:
        return tuple(ENCODERS[group.kind].takes)
    return SCALERS[group.kind].takes


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
    scalers = [s.name for s in SCALERS.values() if seen in s.takes and not s.has_options]
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
