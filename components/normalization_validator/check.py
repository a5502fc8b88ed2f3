"""Statistics against limits: the verdict, and the sentence that names each violated one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from components.normalization_validator.limits import SECTION, TRAIN_SPLIT, NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    SplitStatistics,
    Violation,
)

# Allowance for the rounding of float32.
_ROUNDING = 1e-6
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
    """Return the violated limits by column, train split first.

    `statistics` has the columns of each split, in the same order in every split.
    """
    limits.check_splits(list(statistics))
    splits = sorted(statistics, key=lambda name: (name != TRAIN_SPLIT, name))
    violations: list[Violation] = []
    for columns in zip(*(statistics[split] for split in splits), strict=True):
        for column in columns:
            if limits.ignores(column.name):
                continue
            bounds = [*_in_any_split(column, limits)]
            if column.split == TRAIN_SPLIT:
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
    if column.vocabulary_size is not None:
        yield _Bound("ignore", "min", low=0, note=", the first id")
        yield _Bound("ignore", "max", high=column.vocabulary_size - 1, note=", the last id")


def _of_rule(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    rule = column.validation_rule
    if rule in RULES:
        return RULES[rule](column, limits)
    note = f", the bound of {rule}"
    return [
        _Bound(
            "ignore",
            statistic,
            -math.inf if low is None else low,
            math.inf if high is None else high,
            _ROUNDING,
            note,
        )
        for statistic, (low, high) in (column.bounds or {}).items()
    ]


def _z_score(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    z = limits.z_score
    return (
        _Bound("z_score.max_abs_mean", "mean", -z.max_abs_mean, z.max_abs_mean),
        _Bound("z_score.max_std_error", "std", 1 - z.max_std_error, 1 + z.max_std_error),
    )


def _gaussian(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    # Frequent values share a score, which moves the mean a little and takes from the std.
    return _Bound("ignore", "mean", -0.1, 0.1), _Bound("ignore", "std", high=1.05)


def _min_max(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    return (
        _Bound("ignore", "min", low=0, tolerance=_ROUNDING),
        _Bound("ignore", "max", high=1, tolerance=_ROUNDING),
    )


def _pointwise(column: ColumnStatistics, limits: NormalizationLimits) -> Sequence[_Bound]:
    # Nothing was learned of these columns: where they lie far from 0, or all close together, a
    # model learns little of them.
    if column.std is None or column.constant:
        return ()
    far = 10 * column.std
    note = f", 10 standard deviations from 0{_CHAIN}"
    return (
        _Bound("ignore", "std", low=0.1, high=10, note=_CHAIN),
        _Bound("ignore", "mean", -far, far, note=note),
    )


#: Rules by the name in Transform's layout. Another rule brings its bounds.
RULES: dict[str, Callable[[ColumnStatistics, NormalizationLimits], Sequence[_Bound]]] = {
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
