"""Statistics against limits: the verdict, and the sentence that names each violated limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import ColumnStatistics, Shift, Violation
from components.normalization_validator.shift import by_chance


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
    train = statistics[limits.train_split]
    others = sorted(set(statistics) - {limits.train_split})
    violations: list[Violation] = []
    for i, column in enumerate(train):
        if limits.ignores(column.name):
            continue
        violations += _in_any_split(column, limits)
        violations += _in_train(column, limits)
        for split in others:
            violations += _in_any_split(statistics[split][i], limits)
            violations += _against_train(statistics[split][i], column, limits)
    return violations


def _in_any_split(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    if column.non_finite_share > limits.max_non_finite_share:
        share = column.non_finite_share
        yield _violation(
            column,
            "non_finite_share",
            share,
            "max_non_finite_share",
            f"{column.non_finite} of {column.values} values are NaN or infinite (share "
            f"{_number(share)}), more than {_number(limits.max_non_finite_share)}",
        )
    imputed = limits.max_imputed_share
    if imputed is not None and column.imputed_share > imputed:
        yield _violation(
            column,
            "imputed_share",
            column.imputed_share,
            "max_imputed_share",
            f"share of imputed values {_number(column.imputed_share)} is above {_number(imputed)}",
        )
    size = column.vocabulary_size
    if limits.ids_in_range and size is not None:
        for statistic, value in (("min", column.min), ("max", column.max)):
            if value is not None and not 0 <= value <= size - 1:
                yield _violation(
                    column,
                    statistic,
                    value,
                    "ids_in_range",
                    f"{statistic} {_number(value)} is outside the ids [0, {size - 1}]",
                )


def _in_train(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    if column.constant and not limits.allow_constant:
        yield _violation(
            column,
            "std",
            0.0,
            "allow_constant",
            f"every value is {_number(column.mean)}, and constant columns are not allowed",
        )
    if column.validation_rule is not None:
        yield from RULES.get(column.validation_rule, _within_bounds)(column, limits)


def _z_score(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    return _standard(column, limits, least_std=0.0)


def _z_score_by_key(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    return _standard(column, limits, least_std=1.0)


def _standard(
    column: ColumnStatistics, limits: NormalizationLimits, *, least_std: float
) -> Iterable[Violation]:
    """Check mean 0 and std 1; a std below `least_std` is not checked."""
    z = limits.z_score
    if z is None:
        return
    yield from _far_mean(column, "z_score.max_abs_mean", z.max_abs_mean)
    if (
        column.std is not None
        and not column.constant
        and column.std >= least_std
        and abs(column.std - 1.0) > z.max_std_error
    ):
        yield _violation(
            column,
            "std",
            column.std,
            "z_score.max_std_error",
            f"std {_number(column.std)} is outside 1 ± {_number(z.max_std_error)}",
        )


def _far_mean(column: ColumnStatistics, limit: str, most: float) -> Iterable[Violation]:
    if column.mean is not None and abs(column.mean) > most:
        message = f"mean {_number(column.mean)} is outside ±{_number(most)}"
        yield _violation(column, "mean", column.mean, limit, message)


def _gaussian(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    g = limits.gaussian
    if g is None:
        return
    yield from _far_mean(column, "gaussian.max_abs_mean", g.max_abs_mean)
    if column.std is not None and column.std > g.max_std:
        yield _violation(
            column,
            "std",
            column.std,
            "gaussian.max_std",
            f"std {_number(column.std)} is above {_number(g.max_std)}",
        )


def _min_max(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    m = limits.min_max
    if m is None:
        return
    low, high = m.low - m.tolerance, m.high + m.tolerance
    for statistic, value in (("min", column.min), ("max", column.max)):
        if value is not None and not low <= value <= high:
            field = "low" if value < low else "high"
            yield _violation(
                column,
                statistic,
                value,
                f"min_max.{field}",
                f"{statistic} {_number(value)} is outside [{_number(m.low)}, {_number(m.high)}]",
            )


def _pointwise(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    p = limits.pointwise
    mean, std = column.mean, column.std
    if p is None or mean is None or std is None or column.constant:
        return
    fix = "chain it with what scales its values, as scale: [log1p, z_score]"
    if not p.min_std <= std <= p.max_std:
        field, side = ("min_std", "below") if std < p.min_std else ("max_std", "above")
        limit = _number(p.min_std if std < p.min_std else p.max_std)
        what = f"std {_number(std)} is {side} {limit}: {fix}"
        yield _violation(column, "std", std, f"pointwise.{field}", what)
    if abs(mean) > p.max_abs_mean * std:
        what = (
            f"mean {_number(mean)} is {_number(abs(mean) / std)} standard deviations from 0, more "
            f"than {_number(p.max_abs_mean)}: {fix}"
        )
        yield _violation(column, "mean", mean, "pointwise.max_abs_mean", what)


def _within_bounds(column: ColumnStatistics, limits: NormalizationLimits) -> Iterable[Violation]:
    if limits.bounds is None:
        return
    tolerance = limits.bounds.tolerance
    for statistic, (low, high) in (column.bounds or {}).items():
        value = getattr(column, statistic)
        if value is None or (statistic == "std" and column.constant):
            continue
        for bound, is_outside in ((low, -1.0), (high, 1.0)):
            if bound is not None and (value - bound) * is_outside > tolerance:
                side = "below" if is_outside < 0 else "above"
                what = (
                    f"{statistic} {_number(value)} is {side} {_number(bound)}, the bound of "
                    f"{column.validation_rule}"
                )
                yield _violation(column, statistic, value, "bounds.tolerance", what)


#: Rules with limits in the configuration, by the name in Transform's layout. Another rule brings
#: its bounds. Under z_score_by_key, each key's rows are scaled separately: a key whose rows are
#: all alike is 0 and has no spread, so std may be below 1.
RULES = {
    "z_score": _z_score,
    "z_score_by_key": _z_score_by_key,
    "min_max": _min_max,
    "gaussian": _gaussian,
    "pointwise": _pointwise,
}


def _against_train(
    column: ColumnStatistics, train: ColumnStatistics, limits: NormalizationLimits
) -> Iterable[Violation]:
    accepted = limits.shift
    if accepted is None:
        return
    if accepted.max_moved is not None:
        yield from _more_missing(column, train, accepted.max_moved, accepted.false_alarm)
    found = column.shift
    if found is None:
        return
    chance = by_chance(accepted.false_alarm, column.count, train.count)
    if accepted.max_moved is not None and found.moved > max(accepted.max_moved, chance):
        yield _violation(
            column,
            "moved",
            found.moved,
            "shift.max_moved",
            f"{_percent(found.share)} of the values lie {_interval(found)}, of train's "
            f"{_percent(found.train_share)}: a difference of {_number(found.moved)}, more than "
            f"{_number(accepted.max_moved)}",
        )
    errors = NormalDist().inv_cdf(1 - accepted.false_alarm / 2)
    if (
        accepted.max_mean_shift is not None
        and found.mean is not None
        and abs(found.mean) > accepted.max_mean_shift
        and (found.mean_errors is None or found.mean_errors > errors)
    ):
        yield _violation(
            column,
            "mean_shift",
            found.mean,
            "shift.max_mean_shift",
            f"mean {_number(column.mean)} is {_number(abs(found.mean))} standard deviations from "
            f"train's {_number(train.mean)}, more than {_number(accepted.max_mean_shift)}",
        )


def _more_missing(
    column: ColumnStatistics, train: ColumnStatistics, limit: float, false_alarm: float
) -> Iterable[Violation]:
    rows, train_rows = (c.values + c.absent for c in (column, train))
    if not rows or not train_rows:
        return
    difference = column.missing_share - train.missing_share
    if abs(difference) > max(limit, by_chance(false_alarm, rows, train_rows)):
        yield _violation(
            column,
            "missing_shift",
            difference,
            "shift.max_moved",
            f"{_percent(column.missing_share)} of the rows have no value, of train's "
            f"{_percent(train.missing_share)}: a difference of {_number(abs(difference))}, more "
            f"than {_number(limit)}",
        )


def _interval(found: Shift) -> str:
    if found.low is None and found.high is None:
        return "anywhere"
    if found.low is None:
        return f"below {_number(found.high)}"
    if found.high is None:
        return f"from {_number(found.low)} on"
    return f"in [{_number(found.low)}, {_number(found.high)})"


def _violation(
    column: ColumnStatistics, statistic: str, value: float, field: str, what: str
) -> Violation:
    kind = f" ({column.kind})" if column.kind else ""
    return Violation(
        column=column.name,
        kind=column.kind,
        split=column.split,
        statistic=statistic,
        value=value if math.isfinite(value) else None,
        limit=f"{SECTION}.{field}",
        message=f"column {column.name!r}{kind}, split {column.split}: {what} ({SECTION}.{field})",
    )


def _number(value: float | None) -> str:
    # Beside values of size 1, what is nearer to 0 than the precision of float64 is 0.
    return "none" if value is None else f"{round(value, 12) + 0.0:.6g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
