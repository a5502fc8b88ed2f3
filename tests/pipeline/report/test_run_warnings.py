"""The warnings about metrics and columns."""

from __future__ import annotations

import pytest

from pipeline.report.run_warnings import few_rows, limit_warnings, too_good, worse_than_baselines
from trainer_module.baselines.record import Baseline, Baselines

CONSTANT = Baseline(
    "constant",
    "the training rows' share of positives 0.2500",
    {"auc": 0.5, "binary_accuracy": 0.75, "recall": 1.0, "binary_crossentropy": 0.56},
)


@pytest.mark.parametrize(
    ("name", "metric", "reference", "value", "says"),
    [
        ("constant", "binary_accuracy", 0.75, 0.75, ""),
        ("constant", "binary_crossentropy", 0.56, 0.57, "binary_crossentropy is 0.5600"),
        ("linear", "auc", 0.8, 0.79, "a linear model is better than the model: its auc is 0.8000, "
         "and 0.7900 for the model (on 3 columns). Tune"),
        ("linear", "auc", None, 0.9, ""),
        ("linear", "auc", 0.8, None, ""),
        ("linear", "mean_absolute_error", 2.0, 2.0001, ""),  # equal in the table
    ],
)  # fmt: skip
def test_a_better_baseline_is_reported_by_the_metrics_direction(
    name: str, metric: str, reference: float | None, value: float | None, says: str
) -> None:
    baseline = Baseline(name, "on 3 columns", {metric: reference})
    values = {"other": 0.0} if value is None else {metric: value, "other": 0.0}
    warnings = worse_than_baselines(metric, values, [baseline])
    assert [each.number for each in warnings] == [value] * bool(says)
    assert says in "".join(map(str, warnings))


RARE = Baseline("constant", "", {"binary_accuracy": 0.997})


@pytest.mark.parametrize(
    ("values", "constant", "says"),
    [
        ({"auc": 0.9991}, CONSTANT, "Check that each feature is known"),
        ({"mean_absolute_error": 0.0, "r2": 0.991}, CONSTANT, "r2 is 0.9910"),
        ({"recall": 1.0}, CONSTANT, ""),
        ({"binary_accuracy": 0.998}, RARE, ""),  # a constant has that, too
    ],
)
def test_a_result_that_is_too_good_is_questioned(
    values: dict[str, float], constant: Baseline | None, says: str
) -> None:
    warnings = too_good(values, Baselines(10, 40, (constant,), "") if constant else None)
    assert len(warnings) == bool(says)
    assert says in "".join(map(str, warnings))


@pytest.mark.parametrize(("rows", "says"), [(1, "only 1 row "), (29, "only 29 rows "), (30, "")])
def test_metrics_of_few_rows_are_warned_of(rows: int, says: str) -> None:
    warnings = few_rows({"rows": float(rows)}, "eval")
    assert [each.number for each in warnings] == [rows] * bool(says)
    assert says in "".join(map(str, warnings))


def test_limits_that_only_warn_are_warnings() -> None:
    violation = {"column": "x", "value": 7.0, "message": "column 'x' has a mean of 7."}
    (limit,) = limit_warnings([violation])
    assert (limit.column, limit.number, limit.source) == ("x", 7.0, "NormalizationValidator")
    assert str(limit).startswith("column 'x' has a mean of 7. Correct the column's scaling")
