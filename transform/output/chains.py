"""What became of each column: its chain of steps, with the numbers that the analysis fitted.

    for chain in column_chains(uri):
        print(chain.column, [(step.name, step.kind, step.numbers) for step in chain.steps])

Nothing is computed from data: the steps are those of the spec in the layout, the numbers those of
the transform graph (fitted.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transform.analyzers.fitted import fitted_numbers
from transform.analyzers.present import PRESENT
from transform.layout import Column, FeatureLayout
from transform.spec.cross import Cross
from transform.spec.encoders import Encode
from transform.spec.features import FeatureSpec
from transform.spec.group import Group
from transform.spec.scalers import QUANTILE_GRID, ScaleByKey

_COUNT, _MEAN, _VARIANCE, _MIN, _MAX = range(5)  # ColumnStatistics; the first four of _M2, too
_LOW, _HIGH, _LOWER, _MEDIAN, _UPPER = range(5)  # OrderStatistics
_SHOWN_QUANTILES = (0, 10, 250, 500, 750, 990, 1000)  # of QUANTILE_GRID

Numbers = Mapping[str, Any]  # str, int, float, or a list of them


@dataclass(frozen=True)
class Step:
    """One step of a chain: `clip`, `impute`, `scale`, `encode` or `cross`.

    Attributes:
        name: which of them.
        kind: how, for example `z_score`.
        numbers: what the spec gives and what was fitted, in the column's own unit.
    """

    name: str
    kind: str
    numbers: Numbers = field(default_factory=dict)


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
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    count: int | None = None


def column_chains(uri: str) -> list[Chain]:
    """The chain of each column, in the order of the spec.

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
    fitted = _Fitted.read(uri)
    groups = {group.name: group for group in spec.groups}
    crosses = {cross.name: cross for cross in spec.crosses}
    outputs: dict[tuple[str, str], list[Column]] = {}
    for column in layout.columns:
        outputs.setdefault((column.group, column.source), []).append(column)
    chains = []
    for (owner, source), columns in outputs.items():
        names = tuple(column.name for column in columns)
        if owner in crosses:
            steps = _cross_steps(crosses[owner], columns[0])
            chains.append(Chain(owner, owner, steps, names, fitted.count(source)))
        else:
            steps = _steps(source, groups[owner], columns, fitted)
            chains.append(Chain(source, owner, steps, names, fitted.count(source)))
    return chains


class _Fitted:
    """The kept tensors, column by column."""

    def __init__(self, of_column: dict[tuple[str, str], Any], keys: dict[str, Any]):
        self._of_column = of_column
        self._keys = keys

    @classmethod
    def read(cls, uri: str) -> _Fitted:
        of_column: dict[tuple[str, str], Any] = {}
        keys: dict[str, Any] = {}
        for what, columns, values in fitted_numbers(uri):
            for i, column in enumerate(columns):
                if what == "moments_of_keys":
                    keys[column] = values[:, :, i]
                elif what in ("statistics", "order", "date_counts"):
                    of_column[what, column] = values[:, i]
                else:  # one row per column
                    of_column[what, column] = values[i]
        return cls(of_column, keys)

    def get(self, what: str, column: str) -> Any:
        """The values of a column: a vector, a number or a text; None where none was kept."""
        return self._of_column.get((what, column))

    def moments_of_keys(self, column: str) -> np.ndarray:
        """Float64 `[5, keys + 1]`; the last are those of all rows."""
        return self._keys[column]

    def count(self, column: str) -> int | None:
        present = self.get(PRESENT, column)
        if present is not None:
            return int(present)
        statistics = self.get("statistics", column)
        return None if statistics is None else int(statistics[_COUNT])


def _steps(source: str, group: Group, columns: list[Column], fitted: _Fitted) -> tuple[Step, ...]:
    steps = []
    if group.clip is not None:
        steps.append(_clip_step(source, group, fitted))
    if group.encode is not None:
        if group.impute is not None:
            value = fitted.get("most_frequent", source)
            steps.append(Step("impute", "most_frequent", {"value": _plain(value)}))
        steps.append(_encode_step(source, group.encode, columns, fitted))
        return tuple(steps)
    steps += [_impute_step(source, group, fitted), _scale_step(source, group, fitted)]
    return tuple(steps)


def _clip_step(source: str, group: Group, fitted: _Fitted) -> Step:
    clip = group.clip
    assert clip is not None
    if clip.quantiles is None:
        bounds = {"min": clip.min, "max": clip.max}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        return Step("clip", "absolute", given)
    order = fitted.get("order", source)
    bounds = {"min": _plain(order[_LOW]), "max": _plain(order[_HIGH])}
    return Step("clip", "quantiles", {"quantiles": list(clip.quantiles), **bounds})


def _impute_step(source: str, group: Group, fitted: _Fitted) -> Step:
    filling = group.filling
    if isinstance(filling, (int, float)):
        return Step("impute", "constant", {"value": filling})
    if filling == "mean" and group.by is not None:
        return Step("impute", "mean of the key")
    return Step("impute", filling, {"value": _plain(fitted.get("filling", source))})


def _scale_step(source: str, group: Group, fitted: _Fitted) -> Step:
    if isinstance(group.scale, ScaleByKey):
        return Step("scale", "z_score", _keyed_numbers(source, group.scale, fitted))
    kind = str(group.scale)
    if kind in ("log1p", "none"):
        return Step("scale", kind)
    statistics = fitted.get("statistics", source)
    order = fitted.get("order", source)
    if statistics[_COUNT] == 0:
        return Step("scale", kind, {"note": "no value was there to fit: 0 everywhere"})
    low, high = _plain(statistics[_MIN]), _plain(statistics[_MAX])
    if low == high:
        return Step("scale", kind, {"note": f"constant ({low:g}): 0 everywhere"})
    numbers: dict[str, Any] = {}
    if kind == "z_score":
        deviation = math.sqrt(statistics[_VARIANCE])
        numbers = {"mean": _plain(statistics[_MEAN]), "standard_deviation": deviation}
    elif kind == "min_max":
        numbers = {"min": low, "max": high}
    elif kind == "robust":
        lower, upper = _plain(order[_LOWER]), _plain(order[_UPPER])
        numbers = {"median": _plain(order[_MEDIAN]), "lower_quartile": lower}
        numbers |= {"upper_quartile": upper}
        if lower == upper:
            numbers |= {
                "min": low,
                "max": high,
                "note": "quartiles are equal: divided by max - min",
            }
    elif kind == "gaussian":
        quantiles = fitted.get("quantiles", source)
        shown = {f"quantile_{at / QUANTILE_GRID:g}": at for at in _SHOWN_QUANTILES}
        numbers = {name: _plain(quantiles[at]) for name, at in shown.items()}
    return Step("scale", kind, numbers)


def _keyed_numbers(source: str, scale: ScaleByKey, fitted: _Fitted) -> Numbers:
    moments = fitted.moments_of_keys(source)
    *of_keys, of_all = moments.T
    means = [_plain(key[_MEAN]) for key in of_keys if key[_COUNT] > 0]
    count = max(float(of_all[_COUNT]), 1.0)
    return {
        "by": scale.z_score.by,
        "keys": len(of_keys),
        "mean": _plain(of_all[_MEAN]),  # of all rows: what an unseen key is scaled with
        "standard_deviation": math.sqrt(of_all[_VARIANCE] / count),  # M2 here
        "lowest_mean_of_a_key": min(means, default=None),
        "highest_mean_of_a_key": max(means, default=None),
    }


def _encode_step(source: str, encode: Encode, columns: list[Column], fitted: _Fitted) -> Step:
    numbers: dict[str, Any] = getattr(encode, encode.kind).model_dump(
        mode="json", exclude_none=True
    )
    first = columns[0]
    if encode.bucketize is not None:
        boundaries = fitted.get("boundaries", source)
        numbers["boundaries"] = [] if boundaries is None else boundaries.tolist()
    if first.vocabulary_size is not None and first.vocabulary is not None:
        numbers["values"] = first.vocabulary_size - first.extra_ids
    if first.vocabulary_size is not None and encode.date is None:
        numbers["ids"] = first.vocabulary_size
    if encode.multi_hot is not None and encode.multi_hot.values is None:
        named = [c.name.removeprefix(f"{source}=") for c in columns if c.entry is not None]
        numbers["values"] = named
    return Step("encode", encode.kind, numbers)


def _cross_steps(cross: Cross, column: Column) -> tuple[Step, ...]:
    kind = cross.encode.kind
    numbers = getattr(cross.encode, kind).model_dump(mode="json", exclude_none=True)
    if column.vocabulary_size is not None:
        if column.vocabulary is not None:
            numbers["values"] = column.vocabulary_size - column.extra_ids
        numbers["ids"] = column.vocabulary_size
    return Step("cross", "of", {"columns": list(cross.columns)}), Step("encode", kind, numbers)


def _plain(value: Any) -> Any:
    """A number or text of Python; None for NaN and infinities, which JSON lacks."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    number = float(value)
    return number if math.isfinite(number) else None
