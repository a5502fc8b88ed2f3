"""What became of each column: its chain of steps, with the numbers that the analysis fitted.

    for chain in column_chains(uri):
        print(chain.column, [(step.name, step.kind, step.numbers) for step in chain.steps])

Nothing is computed from data: the steps are those of the spec in the layout, the numbers those of
the transform graph (fitted.py). From them, `column_cautions` says what Transform took without
complaint and a person should know.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from shared_core.feature_layout import Column, FeatureLayout
from shared_core.fitted import Fitted, fitted_numbers
from shared_core.run_warning import LABEL_STEPS, RunWarning, coarse_float32
from transform.analyzers.counts import COUNTS, EXAMPLES, MOST_FREQUENT, DateCounts
from transform.analyzers.fitted import FittedColumn
from transform.analyzers.moments import STATISTICS, FittedStatistics
from transform.analyzers.quantiles import ORDER, OrderStatistics
from transform.block import LARGEST, Explanation, tf
from transform.columns.numbers import FILLING
from transform.encode.ids import BOUNDARIES
from transform.encode.label import LABEL_EXTREMES
from transform.encode.table import ENCODERS
from transform.scale.scaler import MOMENTS
from transform.scale.table import FUNCTIONS, SCALERS
from transform.spec.encoders import Encode
from transform.spec.features import FeatureSpec
from transform.spec.group import Group


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
    fitted = _fitted_columns(uri)
    groups = {group.name: group for group in spec.groups}
    crosses = {cross.name: cross for cross in spec.crosses}
    outputs: dict[tuple[str, str], list[Column]] = {}
    for column in layout.columns:
        outputs.setdefault((column.group, column.source), []).append(column)
    chains = []
    for (owner, source), columns in outputs.items():
        found = fitted.get(source, FittedColumn())
        if owner in crosses:
            cross = crosses[owner]
            of = ChainStep("cross", "of", {"columns": list(cross.columns)})
            steps = (of, _encode_step(cross.encode, columns, found))
        else:
            steps = _steps(groups[owner], columns, found)
        names = tuple(column.name for column in columns)
        column = owner if owner in crosses else source
        chains.append(Chain(column, owner, steps, names, found.count))
    for feature in (*layout.images, *layout.tokens):
        encode = groups[feature.group].encode
        assert encode is not None
        step = _encode_step(encode, [feature], FittedColumn())
        chains.append(Chain(feature.source, feature.group, (step,), (feature.name,)))
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
    numbers = _plain(SCALERS[group.kind].explain_column(fitted))
    return (*steps, _impute_step(group, fitted), ChainStep("scale", group.kind, numbers))


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
    return ChainStep("impute", filling, {"value": _own_unit(fitted.values[FILLING], group)})


def _own_unit(value: Any, group: Group) -> Any:
    """Return what was learned of a chain's function, as a value of the column."""
    plain = _plain(value)
    if group.first is None or plain is None:
        return plain
    with np.errstate(over="ignore"):
        return _plain(FUNCTIONS[group.first].inverse(plain))


def _encode_step(encode: Encode, columns: list[Any], fitted: FittedColumn) -> ChainStep:
    numbers = encode.option.model_dump(mode="json", exclude_none=True)
    learned = ENCODERS[encode.kind].explain(encode.option, columns, fitted)
    return ChainStep("encode", encode.kind, {**numbers, **_plain(learned)})


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


_UNREAD = 0.01  # share of unread dates from which a caution is written
_KEEP_OFFSET = ("none", "max_abs")  # scalers that subtract nothing before their float32
_ONE_BUCKET = 0.5  # share of equal boundaries from which a caution is written


def column_cautions(uri: str) -> list[RunWarning]:
    """Return a warning for each column that lost what its data may have held.

    There are none for a graph of another `preprocessing_fn`; `uri` as for `column_chains`.
    """
    layout = FeatureLayout.from_transform_graph(uri)
    if layout is None:
        return []
    # A missing indicator has the source of what it stands beside.
    kinds = {c.source: c.kind for c in layout.columns if c.kind in SCALERS}
    fitted = fitted_numbers(uri)
    examples = {
        name: bytes(text).decode(errors="replace")
        for kept in fitted
        if kept.what == EXAMPLES
        for name, text in zip(kept.columns, kept.values.tolist(), strict=True)
    }
    found = []
    for kept in fitted:
        if kept.what == COUNTS:
            found += _unread_dates(kept, examples)
        elif kept.what == BOUNDARIES:
            found += _one_bucket(kept)
        elif kept.what == STATISTICS:
            found += _coarse_floats(kept, kinds, _raw_floats(uri))
        elif kept.what == LABEL_EXTREMES:
            for name, (low, high) in kept.by_column().items():
                found += coarse_float32(name, low, high, steps=LABEL_STEPS)
    return found


def _caution(name: str, what: str, fix: str, number: float) -> RunWarning:
    what = f"column {name!r}{what}"
    return RunWarning(what=what, fix=fix, column=name, number=float(number), source="Transform")


def _unread_dates(kept: Fitted, examples: dict[str, str]) -> list[RunWarning]:
    return [
        _caution(
            name,
            f": encode: date cannot read {unread / given:.1%} of the values ({unread:,} of "
            f"{given:,}), for example {examples.get(name, '')[:60]!r}: they "
            "are missing to the model",
            "Write ISO 8601 (2013-05-06, 2013-05-06T17:30:00), say how they are written by "
            "date.format ('%d.%m.%Y'), or write ints with the right date.unit",
            unread,
        )
        for name, given, unread in zip(
            kept.columns, *kept.record(DateCounts, kept.values), strict=True
        )
        if given and unread / given >= _UNREAD
    ]


def _one_bucket(kept: Fitted) -> list[RunWarning]:
    found = []
    for name, boundaries in zip(kept.columns, kept.values, strict=True):
        values, counts = np.unique(boundaries, return_counts=True)
        most = int(counts.argmax())
        buckets = boundaries.size + 1
        if boundaries.size > 1 and counts[most] > 1 and counts[most] / buckets >= _ONE_BUCKET:
            what = (
                f": {counts[most]} of the {boundaries.size} boundaries of encode: bucketize are "
                f"{values[most]:g}, which most rows hold: of {buckets} buckets, at most "
                f"{values.size + 1} are used"
            )
            fix = "Give bucketize.boundaries, or use scale: gaussian"
            found.append(_caution(name, what, fix, values[most]))
    return found


def _coarse_floats(kept: Fitted, kinds: dict[str, str], floats: frozenset[str]) -> list[RunWarning]:
    found = []
    statistics = kept.record(FittedStatistics, kept.values)
    for name, low, high in zip(kept.columns, statistics.minimum, statistics.maximum, strict=True):
        scaler = SCALERS[kinds[name]]
        reach = max(abs(low), abs(high))
        # Those of a chain are of a function's values; without any value, they are infinite.
        if scaler.first is not None or not np.isfinite(reach):
            continue
        if reach > LARGEST and MOMENTS in scaler.requires:
            what = (
                f" goes up to {reach:.2g}: mean and variance take numbers beyond 3e144 for that one"
            )
            fix = "Derive its logarithm, or use scale: min_max or gaussian"
            found.append(_caution(name, what, fix, reach))
        if name in floats:
            effect = ": 0 everywhere" if scaler.requires else ""
            found += coarse_float32(name, low, high, if_constant=effect)
        elif scaler.name in _KEEP_OFFSET:
            keeper = f"scale: {scaler.name}"
            found += coarse_float32(name, low, high, keeper=keeper, fix="Use scale: z_score")
    return found


def _raw_floats(uri: str) -> frozenset[str]:
    """Return raw columns that tf.Example holds as float32."""
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(uri).raw_feature_spec()
    return frozenset(name for name, feature in spec.items() if feature.dtype == tf.float32)


_RECORDS = {STATISTICS: FittedStatistics, ORDER: OrderStatistics}


def _fitted_columns(uri: str) -> dict[str, FittedColumn]:
    """Return column -> what was found of it."""
    records: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, Any]] = {}
    for kept in fitted_numbers(uri):
        for column, found in kept.by_column().items():
            if kept.what in _RECORDS:
                record = kept.record(cast("Any", _RECORDS[kept.what]), found)
                records.setdefault(column, {})[kept.what] = record
            else:
                value = dict(zip(kept.fields, found, strict=True)) if kept.fields else found
                values.setdefault(column, {})[kept.what] = value
    return {
        column: FittedColumn(values=values.get(column, {}), **records.get(column, {}))
        for column in {**records, **values}
    }
