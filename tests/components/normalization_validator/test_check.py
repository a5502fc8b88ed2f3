"""Limits: what is accepted, and the words of what is not."""

from __future__ import annotations

import pytest

from components.normalization_validator.check import RULES, find_violations
from components.normalization_validator.limits import NormalizationLimits
from components.normalization_validator.report import ColumnStatistics

GOOD = {"mean": 0.0, "std": 1.0, "min": -2.0, "max": 2.0}


def _column(split: str = "train", kind: str | None = "z_score", **changes) -> ColumnStatistics:
    fields = {
        "name": "fare",
        "kind": kind,
        "feature": "packed_float",
        "position": 0,
        "vocabulary_size": None,
        "split": split,
        "values": 1000,
        "absent": 0,
        "non_finite": 0,
        "imputed": 0,
        "count": 1000,
        "constant": False,
        "histogram": None,
    }
    rule = kind if kind in RULES else None
    return ColumnStatistics.model_validate({**fields, "validation_rule": rule, **GOOD, **changes})


def _messages(*columns: ColumnStatistics, **limits) -> list[str]:
    found = find_violations({c.split: [c] for c in columns}, NormalizationLimits(**limits))
    return [violation.message for violation in found]


def test_a_normalised_column_violates_nothing():
    assert _messages(_column(), _column("eval", mean=0.1)) == []


def test_z_score_mean_and_std():
    assert _messages(_column(mean=0.31, std=0.5)) == [
        "column 'fare' (z_score), split train: mean 0.31 is outside ±0.01 "
        "(normalization.z_score.max_abs_mean)",
        "column 'fare' (z_score), split train: std 0.5 is outside 1 ± 0.01 "
        "(normalization.z_score.max_std_error)",
    ]


def test_z_score_holds_on_train_alone():
    assert _messages(_column(), _column("eval", mean=0.31, std=2.0)) == []


def test_z_score_of_a_constant_column_is_zero():
    constant = {"constant": True, "std": 0.0, "min": 0.0, "max": 0.0}
    assert _messages(_column(**constant)) == []
    assert _messages(_column(**constant), allow_constant=False) == [
        "column 'fare' (z_score), split train: every value is 0, and constant columns are not "
        "allowed (normalization.allow_constant)"
    ]
    assert "mean 5 is outside" in _messages(_column(**{**constant, "mean": 5.0}))[0]


def test_z_score_by_key_may_have_less_spread_but_not_more():
    alike = {"kind": "z_score_by_key", "std": 0.8}  # keys whose rows are all alike
    assert _messages(_column(**alike)) == []
    assert _messages(_column(**{**alike, "std": 1.2, "mean": 0.31})) == [
        "column 'fare' (z_score_by_key), split train: mean 0.31 is outside ±0.01 "
        "(normalization.z_score.max_abs_mean)",
        "column 'fare' (z_score_by_key), split train: std 1.2 is outside 1 ± 0.01 "
        "(normalization.z_score.max_std_error)",
    ]


def test_gaussian_of_frequent_values_is_not_quite_centred():
    assert _messages(_column(kind="gaussian", mean=0.079, std=0.7)) == []
    assert _messages(_column(kind="gaussian", mean=-0.2, std=1.2)) == [
        "column 'fare' (gaussian), split train: mean -0.2 is outside ±0.1 "
        "(normalization.gaussian.max_abs_mean)",
        "column 'fare' (gaussian), split train: std 1.2 is above 1.05 "
        "(normalization.gaussian.max_std)",
    ]
    assert _messages(_column(kind="gaussian", mean=-0.2, std=1.2), gaussian=None) == []


def test_a_function_alone_that_leaves_values_far_from_0():
    for mean, std, expected in [
        (5.3, 0.07, ["std 0.07 is below 0.1", "mean 5.3 is 75.7143 standard deviations from 0"]),
        (6.2, 1.0, []),
        (-11.0, 1.0, ["mean -11 is 11 standard deviations from 0, more than 10"]),
        (0.0, 20.0, ["std 20 is above 10"]),
    ]:
        found = _messages(_column(kind="pointwise", mean=mean, std=std))
        assert len(found) == len(expected)
        for message, part in zip(found, expected, strict=True):
            assert part in message
            assert "scale: [log1p, z_score]" in message


def test_min_max():
    assert _messages(_column(kind="min_max", min=-1e-7, max=1.0 + 1e-7)) == []
    assert _messages(_column(kind="min_max", min=-0.5, max=1.25)) == [
        "column 'fare' (min_max), split train: min -0.5 is outside [0, 1] "
        "(normalization.min_max.low)",
        "column 'fare' (min_max), split train: max 1.25 is outside [0, 1] "
        "(normalization.min_max.high)",
    ]
    assert _messages(_column(kind="min_max", min=-1.0), min_max={"low": -1, "high": 2}) == []


def test_non_finite_in_any_split():
    assert _messages(_column(), _column("eval", non_finite=3)) == [
        "column 'fare' (z_score), split eval: 3 of 1000 values are NaN or infinite (share 0.003), "
        "more than 0 (normalization.max_non_finite_share)"
    ]


def test_imputed_share_is_judged_only_when_asked_for():
    assert _messages(_column(imputed=900)) == []
    assert _messages(_column(imputed=900), max_imputed_share=0.5) == [
        "column 'fare' (z_score), split train: share of imputed values 0.9 is above 0.5 "
        "(normalization.max_imputed_share)"
    ]


def test_ids_lie_in_the_vocabulary():
    ids = {"kind": "vocabulary", "vocabulary_size": 10, "min": 0.0}
    assert _messages(_column(**ids, max=9.0)) == []
    assert _messages(_column(**ids, max=9.0), _column("eval", **ids, max=10.0)) == [
        "column 'fare' (vocabulary), split eval: max 10 is outside the ids [0, 9] "
        "(normalization.ids_in_range)"
    ]


def test_null_turns_a_group_of_limits_off_and_ignore_a_column():
    bad = _column(mean=9.0)
    assert len(_messages(bad)) == 1
    assert _messages(bad, z_score=None) == []
    assert _messages(bad, ignore=("fa*",)) == []


def test_a_train_split_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"train_split='train' is not a split.*'eval'"):
        _messages(_column("eval"))
