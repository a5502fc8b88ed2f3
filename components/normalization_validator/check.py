"""Statistics against limits: the verdict, and the sentence that names each violated one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    SplitStatistics,
    Violation,
)

_CHAIN = ": chain it with what scales its values, as scale: [log1p, z_score]"


class _Bound(NamedTuple):
    """What a statistic may be, by a field of the limits."""

    field: str
    statistic: str
    low: float = -math.inf
    high: float = math.inf
    tolerance: float = 0.0
    note: str = ""

    def check(self, column: ColumnStatistics) -> Iterator[Violation]:
        """Yield a violation if the column has another value."""
        value = getattr(column, self.statistic)
        if value is None or (self.statistic == "std" and column.constant):
            return
        for outside, where in (
            (self.low - value > self.tolerance, f"below {_number(self.low)}"),
            (value - self.high > self.tolerance, f"above {_number(self.high)}"),
        ):
            if outside:
                what = f"{self.statistic} {_number(value)} is {where}{self.note}"
                yield _violation(column, self.statistic, value, self.field, what)


def find_violations(
    statistics: Mapping[str, Sequence[ColumnStatistics]], limits: NormalizationLimits
) -> list[Violation]:
    """Compare statistics with limits.

    Args:
        statistics: per split, the statistics of each column, in the same order in every split.
        limits: what is accepted.

    Returns:
        The violations, by column, train split first.

    Raises:
        ValueError: `limits.train_split` is not a split of the examples.
    """
    limits.check_splits(list(statistics))
    splits = sorted(statistics, key=lambda name: (name != limits.train_split, name))
    violations: list[Violation] = []
    for columns in zip(*(statistics[split] for split in splits), strict=True):
        for column in columns:
            if limits.ignores(column.name):
                continue
            bounds = [*_in_any_split(column, limits)]
            if column.split == limits.train_split:
                bounds += _of_rule(column, limits)
                if column.constant and not limits.allow_constant:
                    what = f"every value is {_number(column.mean)}, and constant columns are not"
                    violations.append(
                        _violation(column, "std", 0.0, "allow_constant", f"{what} allowed")
                    )
            violations += [found for bound in bounds for found in bound.check(column)]
    return violations


def _in_any_split(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Bound]:
    note = f": {column.non_finite} of {column.values} values are NaN or infinite"
    most = limits.max_non_finite_share
    yield _Bound("max_non_finite_share", "non_finite_share", high=most, note=note)
    if limits.max_imputed_share is not None:
        yield _Bound("max_imputed_share", "imputed_share", high=limits.max_imputed_share)
    if limits.ids_in_range and column.vocabulary_size is not None:
        yield _Bound("ids_in_range", "min", low=0, note=", the first id")
        yield _Bound("ids_in_range", "max", high=column.vocabulary_size - 1, note=", the last id")


def _of_rule(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    rule = column.validation_rule
    if rule in RULES:
        accepted = getattr(limits, rule)
        return () if accepted is None else RULES[rule](accepted, column)
    if limits.bounds is None:
        return ()
    field, note = "bounds.tolerance", f", the bound of {rule}"
    return [
        _Bound(
            field,
            statistic,
            -math.inf if low is None else low,
            math.inf if high is None else high,
            limits.bounds.tolerance,
            note,
        )
        for statistic, (low, high) in (column.bounds or {}).items()
    ]


def _z_score(z: Any, column: ColumnStatistics) -> Sequence[_Bound]:
    return (
        _Bound("z_score.max_abs_mean", "mean", -z.max_abs_mean, z.max_abs_mean),
        _Bound("z_score.max_std_error", "std", 1 - z.max_std_error, 1 + z.max_std_error),
    )


def _gaussian(g: Any, column: ColumnStatistics) -> Sequence[_Bound]:
    return (
        _Bound("gaussian.max_abs_mean", "mean", -g.max_abs_mean, g.max_abs_mean),
        _Bound("gaussian.max_std", "std", high=g.max_std),
    )


def _min_max(m: Any, column: ColumnStatistics) -> Sequence[_Bound]:
    return (
        _Bound("min_max.low", "min", low=m.low, tolerance=m.tolerance),
        _Bound("min_max.high", "max", high=m.high, tolerance=m.tolerance),
    )


def _pointwise(p: Any, column: ColumnStatistics) -> Sequence[_Bound]:
    if column.std is None or column.constant:
        return ()
    far = p.max_abs_mean * column.std
    note = f", {_number(p.max_abs_mean)} standard deviations from 0{_CHAIN}"
    return (
        _Bound("pointwise.min_std", "std", low=p.min_std, note=_CHAIN),
        _Bound("pointwise.max_std", "std", high=p.max_std, note=_CHAIN),
        _Bound("pointwise.max_abs_mean", "mean", -far, far, note=note),
    )


#: Rules with limits in the configuration, by the name in Transform's layout. Another rule brings
#: its bounds.
RULES: dict[str, Callable[[Any, ColumnStatistics], Sequence[_Bound]]] = {
    "z_score": _z_score,
    "min_max": _min_max,
    "gaussian": _gaussian,
    "pointwise": _pointwise,
}


def lost_columns(
    train: SplitStatistics,
    raw: Sequence[RawColumn],
    sources: Mapping[str, str],
    limits: NormalizationLimits,
) -> list[Violation]:
    """Return a violation for each column that is constant on train where its raw column is not.

    It has lost what it held: to a clip, a scale of 0, a vocabulary of one entry.
    """
    raw_of = {column.name: column for column in raw if column.split == train.split}
    violations = []
    for column in train.columns:
        source = sources[column.name]
        if not column.constant or column.is_aspect or limits.ignores(column.name):
            continue
        held = _held(raw_of[source]) if source in raw_of else None
        if held is not None:
            what = (
                f"every value is {column.mean:.6g}, but the raw column {source!r} {held}: clip, "
                f"scale or encoding lost its values; {SECTION}.ignore names columns that may be so"
            )
            violations.append(_violation(column, "std", 0.0, "ignore", what))
    return violations


def _held(raw: RawColumn) -> str | None:
    """Return what a raw column holds; None where that is one value, or none."""
    if raw.labels is None:
        return None if raw.low == raw.high else f"goes from {raw.low:.9g} to {raw.high:.9g}"
    texts = sorted(filter(None, raw.labels))  # "" is a missing value
    return f"goes from {texts[0]!r} to {texts[-1]!r}" if len(texts) > 1 else None


def _violation(
    column: ColumnStatistics, statistic: str, value: float, field: str, what: str
) -> Violation:
    """Return the violation of a field of the limits."""
    kind = f" ({column.kind})" if column.kind else ""
    limit = f"{SECTION}.{field}"
    return Violation(
        column=column.name,
        kind=column.kind,
        split=column.split,
        statistic=statistic,
        value=value if math.isfinite(value) else None,
        limit=limit,
        message=f"column {column.name!r}{kind}, split {column.split}: {what} ({limit})",
    )


def _number(value: float | None) -> str:
    # Beside values of size 1, what is nearer to 0 than the precision of float64 is 0.
    return "none" if value is None else f"{round(value, 12) + 0.0:.6g}"
