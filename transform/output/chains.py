"""What became of each column: its chain of steps, with the numbers that the analysis fitted.

    for chain in column_chains(uri):
        print(chain.column, [(step.name, step.kind, step.numbers) for step in chain.steps])

Nothing is computed from data: the steps are those of the spec in the layout, the numbers those of
the transform graph (fitted.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transform.aliases import Explanation
from transform.analyzers.fitted_column import FittedColumn, fitted_columns
from transform.analyzers.most_frequent import MOST_FREQUENT
from transform.encode.table import ENCODERS
from shared_core.feature_layout import Column, FeatureLayout
from transform.scale.pointwise import FUNCTIONS
from transform.scale.table import SCALERS
from transform.spec.cross import Cross
from transform.spec.encoders import Encode
from transform.spec.features import FeatureSpec
from transform.spec.group import Group
from transform.steps.impute import FILLING


@dataclass(frozen=True)
class ChainStep:
    """One step of a chain: `clip`, `impute`, `scale`, `encode` or `cross`.

    Attributes:
        name: which of them.
        kind: how, for example `z_score`.
        numbers: what the spec gives and what was fitted, in the column's own unit.
    """

    name: str
    kind: str
    numbers: Explanation = field(default_factory=dict)


@dataclass(frozen=True)
class Chain:
    """A column, what is done with it, and what it becomes.

    Attributes:
        column: raw or derived column, or a cross.
        group: its group in the spec; a cross's own name.
        steps: in order.
        outputs: columns of Transform's output.
        count: rows of the analysis data that have a value, of a cross: one in each of its columns;
            None in a graph of a version that did not count them.
    """

    column: str
    group: str
    steps: tuple[ChainStep, ...]
    outputs: tuple[str, ...]
    count: int | None = None


def column_chains(uri: str) -> list[Chain]:
    """Return the chain of each column, in the order of the spec.

    Args:
        uri: of the `transform_graph` artifact, or `TFTransformOutput`'s folder.

    Raises:
        ValueError: the graph was not made by this package's `preprocessing_fn`, or by a version
            that did not keep the spec.
    """
    layout = FeatureLayout.from_transform_graph(uri)
    if layout is None or layout.features is None:
        raise ValueError(
            f"the transform graph under {uri} has no feature layout with its specification; run "
            "Transform again, with preprocessing_fn='transform.preprocessing_fn'"
        )
    spec = FeatureSpec.model_validate(layout.features)
    fitted = fitted_columns(uri)
    groups = {group.name: group for group in spec.groups}
    crosses = {cross.name: cross for cross in spec.crosses}
    outputs: dict[tuple[str, str], list[Column]] = {}
    for column in layout.columns:
        outputs.setdefault((column.group, column.source), []).append(column)
    chains = []
    for (owner, source), columns in outputs.items():
        found = fitted.get(source, FittedColumn())
        if owner in crosses:
            steps = _cross_steps(crosses[owner], columns, found)
        else:
            steps = _steps(groups[owner], columns, found)
        names = tuple(column.name for column in columns)
        column = owner if owner in crosses else source
        chains.append(Chain(column, owner, steps, names, found.count))
    return chains


def _steps(group: Group, columns: list[Column], fitted: FittedColumn) -> tuple[ChainStep, ...]:
    steps = []
    if group.clip is not None:
        steps.append(_clip_step(group, fitted))
    if group.encode is not None:
        if group.impute is not None:
            value = fitted.values.get(MOST_FREQUENT)
            steps.append(ChainStep("impute", "most_frequent", {"value": _plain(value)}))
        step = _encode_step(group.encode, columns, fitted)
        shared = {"share": True} if group.share else {}
        steps.append(dataclasses.replace(step, numbers={**shared, **step.numbers}))
        return tuple(steps)
    # As the YAML has it: `scale: {z_score: {by: ...}}` is a z_score.
    kind = "z_score" if group.by is not None else group.kind
    numbers = _plain(SCALERS[group.kind].explain(group, fitted))
    return (*steps, _impute_step(group, fitted), ChainStep("scale", kind, numbers))


def _clip_step(group: Group, fitted: FittedColumn) -> ChainStep:
    clip = group.clip
    assert clip is not None
    if clip.quantiles is None:
        bounds = {"min": clip.min, "max": clip.max}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        return ChainStep("clip", "absolute", given)
    assert fitted.order is not None
    low, high = fitted.order.low, fitted.order.high
    bounds = {"min": _own_unit(low, group), "max": _own_unit(high, group)}
    return ChainStep("clip", "quantiles", {"quantiles": list(clip.quantiles), **bounds})


def _impute_step(group: Group, fitted: FittedColumn) -> ChainStep:
    filling = group.filling
    if isinstance(filling, (int, float)):
        return ChainStep("impute", "constant", {"value": filling})
    if filling == "mean" and group.by is not None:
        return ChainStep("impute", "mean of the key")
    return ChainStep("impute", filling, {"value": _own_unit(fitted.values[FILLING], group)})


def _own_unit(value: Any, group: Group) -> Any:
    """Return what was learned of a chain's function, as a value of the column."""
    plain = _plain(value)
    if group.first is None or plain is None:
        return plain
    with np.errstate(over="ignore"):
        return _plain(FUNCTIONS[group.first].inverse(plain))


def _encode_step(encode: Encode, columns: list[Column], fitted: FittedColumn) -> ChainStep:
    numbers = encode.option.model_dump(mode="json", exclude_none=True)
    learned = ENCODERS[encode.kind].explain(encode.option, columns, fitted)
    return ChainStep("encode", encode.kind, {**numbers, **_plain(learned)})


def _cross_steps(
    cross: Cross, columns: list[Column], fitted: FittedColumn
) -> tuple[ChainStep, ...]:
    of = ChainStep("cross", "of", {"columns": list(cross.columns)})
    return of, _encode_step(cross.encode, columns, fitted)


def _plain(value: Any) -> Any:
    """Return numbers and texts of Python; None for NaN and infinities, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.ndarray | np.generic):
        number = float(np.asarray(value))
        return number if math.isfinite(number) else None
    return value
