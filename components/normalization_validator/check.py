"""Statistics against limits: the verdict, and the sentence that names each violated one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import ColumnStatistics, Violation

#: Statistic, its value, the field of the limit, and what is wrong.
_Found = tuple[str, float, str, str]


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
    for column in zip(*(statistics[split] for split in splits), strict=True):
        if limits.ignores(column[0].name):
            continue
        for each in column:
            found = [*_in_any_split(each, limits)]
            if each.split == limits.train_split:
                found += _in_train(each, limits)
            for statistic, value, field, what in found:
                violations.append(
                    Violation.of(each, statistic, value, field, f"{what} ({SECTION}.{field})")
                )
    return violations


def _in_any_split(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    share, most = column.non_finite_share, limits.max_non_finite_share
    if share > most:
        what = (
            f"{column.non_finite} of {column.values} values are NaN or infinite (share "
            f"{_number(share)}), more than {_number(most)}"
        )
        yield "non_finite_share", share, "max_non_finite_share", what
    share, most = column.imputed_share, limits.max_imputed_share
    if most is not None and share > most:
        what = f"share of imputed values {_number(share)} is above {_number(most)}"
        yield "imputed_share", share, "max_imputed_share", what
    size = column.vocabulary_size
    if limits.ids_in_range and size is not None:
        for statistic, value in _ends_outside(column, 0, size - 1):
            what = f"{statistic} {_number(value)} is outside the ids [0, {size - 1}]"
            yield statistic, value, "ids_in_range", what


def _in_train(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    if column.constant and not limits.allow_constant:
        what = f"every value is {_number(column.mean)}, and constant columns are not allowed"
        yield "std", 0.0, "allow_constant", what
    if column.validation_rule is not None:
        yield from RULES.get(column.validation_rule, _within_bounds)(column, limits)


def _ends_outside(column: ColumnStatistics, low: float, high: float) -> Iterator[tuple[str, float]]:
    for statistic, value in (("min", column.min), ("max", column.max)):
        if value is not None and not low <= value <= high:
            yield statistic, value


def _z_score(
    column: ColumnStatistics, limits: NormalizationLimits, least_std: float = 0.0
) -> Iterator[_Found]:
    """Check mean 0 and std 1; a std below `least_std` is not checked."""
    z, std = limits.z_score, column.std
    if z is None:
        return
    yield from _far_mean(column, "z_score.max_abs_mean", z.max_abs_mean)
    if std is None or column.constant or std < least_std:
        return
    if abs(std - 1.0) > z.max_std_error:
        what = f"std {_number(std)} is outside 1 ± {_number(z.max_std_error)}"
        yield "std", std, "z_score.max_std_error", what


def _z_score_by_key(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    # A key whose rows are all alike is 0 and has no spread, so std may be below 1.
    return _z_score(column, limits, least_std=1.0)


def _far_mean(column: ColumnStatistics, limit: str, most: float) -> Iterator[_Found]:
    if column.mean is not None and abs(column.mean) > most:
        what = f"mean {_number(column.mean)} is outside ±{_number(most)}"
        yield "mean", column.mean, limit, what


def _gaussian(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    g, std = limits.gaussian, column.std
    if g is None:
        return
    yield from _far_mean(column, "gaussian.max_abs_mean", g.max_abs_mean)
    if std is not None and std > g.max_std:
        yield "std", std, "gaussian.max_std", f"std {_number(std)} is above {_number(g.max_std)}"


def _min_max(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    m = limits.min_max
    if m is None:
        return
    low, high = m.low - m.tolerance, m.high + m.tolerance
    for statistic, value in _ends_outside(column, low, high):
        what = f"{statistic} {_number(value)} is outside [{_number(m.low)}, {_number(m.high)}]"
        yield statistic, value, f"min_max.{'low' if value < low else 'high'}", what


def _pointwise(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    p, mean, std = limits.pointwise, column.mean, column.std
    if p is None or mean is None or std is None or column.constant:
        return
    fix = "chain it with what scales its values, as scale: [log1p, z_score]"
    if std < p.min_std:
        what = f"std {_number(std)} is below {_number(p.min_std)}: {fix}"
        yield "std", std, "pointwise.min_std", what
    if std > p.max_std:
        what = f"std {_number(std)} is above {_number(p.max_std)}: {fix}"
        yield "std", std, "pointwise.max_std", what
    if abs(mean) > p.max_abs_mean * std:
        what = (
            f"mean {_number(mean)} is {_number(abs(mean) / std)} standard deviations from 0, more "
            f"than {_number(p.max_abs_mean)}: {fix}"
        )
        yield "mean", mean, "pointwise.max_abs_mean", what


def _within_bounds(column: ColumnStatistics, limits: NormalizationLimits) -> Iterator[_Found]:
    if limits.bounds is None:
        return
    tolerance, field = limits.bounds.tolerance, "bounds.tolerance"
    for statistic, (low, high) in (column.bounds or {}).items():
        value = getattr(column, statistic)
        if value is None or (statistic == "std" and column.constant):
            continue
        where = f"the bound of {column.validation_rule}"
        if low is not None and low - value > tolerance:
            what = f"{statistic} {_number(value)} is below {_number(low)}, {where}"
            yield statistic, value, field, what
        if high is not None and value - high > tolerance:
            what = f"{statistic} {_number(value)} is above {_number(high)}, {where}"
            yield statistic, value, field, what


#: Rules with limits in the configuration, by the name in Transform's layout. Another rule brings
#: its bounds.
RULES: dict[str, Callable[[ColumnStatistics, NormalizationLimits], Iterator[_Found]]] = {
    "z_score": _z_score,
    "z_score_by_key": _z_score_by_key,
    "min_max": _min_max,
    "gaussian": _gaussian,
    "pointwise": _pointwise,
}


def _number(value: float | None) -> str:
    # Beside values of size 1, what is nearer to 0 than the precision of float64 is 0.
    return "none" if value is None else f"{round(value, 12) + 0.0:.6g}"
