"""Statistics against limits: the verdict, and the sentence that names each violated limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import ColumnStatistics, Violation

#: Kinds whose columns hold ids in [0, vocabulary_size), to which no scale applies.
ID_KINDS = frozenset({"vocabulary", "integer", "bucketize", "hash", "date"})

#: z_score of each key's rows: the mean is 0 as under z_score, but a key whose rows are all alike is
#: 0 with no spread of its own, so that std may be below 1.
BY_KEY = "z_score_by_key"


def find_violations(
    statistics: Mapping[str, Sequence[ColumnStatistics]], limits: NormalizationLimits
) -> list[Violation]:
    """Compares statistics with limits.

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
    if limits.ids_in_range and column.kind in ID_KINDS and size is not None:
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
    z = limits.z_score
    if column.kind in ("z_score", BY_KEY) and z is not None:
        if column.mean is not None and abs(column.mean) > z.max_abs_mean:
            yield _violation(
                column,
                "mean",
                column.mean,
                "z_score.max_abs_mean",
                f"mean {_number(column.mean)} is outside ±{_number(z.max_abs_mean)}",
            )
        if (
            column.std is not None
            and not column.constant
            and abs(column.std - 1.0) > z.max_std_error
            and not (column.kind == BY_KEY and column.std < 1.0)
        ):
            yield _violation(
                column,
                "std",
                column.std,
                "z_score.max_std_error",
                f"std {_number(column.std)} is outside 1 ± {_number(z.max_std_error)}",
            )
    g = limits.gaussian
    if column.kind == "gaussian" and g is not None:
        if column.mean is not None and abs(column.mean) > g.max_abs_mean:
            yield _violation(
                column,
                "mean",
                column.mean,
                "gaussian.max_abs_mean",
                f"mean {_number(column.mean)} is outside ±{_number(g.max_abs_mean)}",
            )
        if column.std is not None and column.std > g.max_std:
            yield _violation(
                column,
                "std",
                column.std,
                "gaussian.max_std",
                f"std {_number(column.std)} is above {_number(g.max_std)}",
            )
    m = limits.min_max
    if column.kind == "min_max" and m is not None:
        low, high = m.low - m.tolerance, m.high + m.tolerance
        for statistic, value in (("min", column.min), ("max", column.max)):
            if value is not None and not low <= value <= high:
                field = "low" if value < low else "high"
                yield _violation(
                    column,
                    statistic,
                    value,
                    f"min_max.{field}",
                    f"{statistic} {_number(value)} is outside "
                    f"[{_number(m.low)}, {_number(m.high)}]",
                )


def _against_train(
    column: ColumnStatistics, train: ColumnStatistics, limits: NormalizationLimits
) -> Iterable[Violation]:
    shift = limits.shift
    if shift is None or column.kind in ID_KINDS:
        return
    if column.count < shift.min_count or train.count < shift.min_count:
        return
    distance = mean_shift(column, train)
    if (
        shift.max_mean_shift is not None
        and distance is not None
        and abs(distance) > shift.max_mean_shift
    ):
        yield _violation(
            column,
            "mean_shift",
            distance,
            "shift.max_mean_shift",
            f"mean {_number(column.mean)} is {_number(abs(distance))} standard deviations from "
            f"train's {_number(train.mean)}, more than {_number(shift.max_mean_shift)}",
        )
    if shift.max_std_ratio is not None and column.std is not None and train.std:
        ratio = column.std / train.std
        if not 1 / shift.max_std_ratio <= ratio <= shift.max_std_ratio:
            yield _violation(
                column,
                "std_ratio",
                ratio,
                "shift.max_std_ratio",
                f"std {_number(column.std)} is {_number(ratio)} times train's "
                f"{_number(train.std)}, outside [{_number(1 / shift.max_std_ratio)}, "
                f"{_number(shift.max_std_ratio)}]",
            )


def mean_shift(column: ColumnStatistics, train: ColumnStatistics) -> float | None:
    """(mean - train mean) / train std.

    Where train is constant, its standard deviation is no unit: the split's own is taken, and where
    that is 0 too, equal means are no shift and others are infinitely far apart.
    """
    if column.mean is None or train.mean is None or column.std is None or train.std is None:
        return None
    difference = column.mean - train.mean
    if difference == 0.0:
        return 0.0
    unit = column.std if train.constant else train.std
    return difference / unit if unit > 0.0 else math.copysign(math.inf, difference)


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
    # Beside values of size 1, what is nearer to 0 than float64 can tell apart is 0.
    return "none" if value is None else f"{round(value, 12) + 0.0:.6g}"
