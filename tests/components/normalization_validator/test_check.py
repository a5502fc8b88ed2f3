"""Limits: what is accepted, and the words of what is not."""

from __future__ import annotations

import re

import pytest
import yaml

from components.normalization_validator.check import RULES, find_violations, lost_columns
from components.normalization_validator.limits import SECTION, NormalizationLimits
from components.normalization_validator.report import (
    ColumnStatistics,
    RawColumn,
    SplitStatistics,
)

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


CONSTANT = {"constant": True, "std": 0.0, "min": 0.0, "max": 0.0}
IDS = {"kind": "vocabulary", "vocabulary_size": 10, "min": 0.0}
# Changes to a good column; limits; the expected violations, with `;` between two.
_TRAIN = """
{} | {} |
{mean: 0.31, std: 0.5} | {} | mean 0.31 is above 0.01 (z_score.max_abs_mean);
    std 0.5 is below 0.99 (z_score.max_std_error)
{mean: -0.31} | {z_score: {max_abs_mean: 0.4}} |
{mean: -0.31} | {ignore: [fa*]} |
{constant: true, std: 0, min: 0, max: 0} | {} |
{constant: true, std: 0, min: 0, max: 0} | {allow_constant: false} | every value is 0, and constant
    columns are not allowed (allow_constant)
{constant: true, std: 0, mean: 5} | {} | mean 5 is above 0.01 (z_score.max_abs_mean)
{kind: gaussian, mean: 0.079, std: 0.7} | {} |
{kind: gaussian, mean: -0.2, std: 1.2} | {} | mean -0.2 is below -0.1 (ignore);
    std 1.2 is above 1.05 (ignore)
{kind: pointwise, mean: 6.2} | {} |
{kind: pointwise, mean: 5.3, std: 0.07} | {} | std 0.07 is below 0.1: CHAIN (ignore);
    mean 5.3 is above 0.7, 10 standard deviations from 0: CHAIN (ignore)
{kind: pointwise, mean: 0, std: 20} | {} | std 20 is above 10: CHAIN (ignore)
{kind: min_max, min: -1.0e-7, max: 1.0000001} | {} |
{kind: min_max, min: -0.5, max: 1.25} | {} | min -0.5 is below 0 (ignore);
    max 1.25 is above 1 (ignore)
{kind: min_max, min: -1} | {ignore: [fare]} |
{imputed: 900} | {} |
{imputed: 900} | {max_imputed_share: 0.5} | imputed_share 0.9 is above 0.5 (max_imputed_share)
{kind: vocabulary, vocabulary_size: 10, min: 0, max: 9} | {} |
"""


def test_limits_of_the_train_split():
    for line in re.sub(r"\n +", " ", _TRAIN.strip()).splitlines():
        changes, limits, words = line.split(" |")
        column, words = yaml.safe_load(changes), words.replace("(", f"({SECTION}.")
        words = words.replace(
            "CHAIN", "chain it with what scales its values, as scale: [log1p, z_score]"
        )
        where = f"column 'fare' ({column.get('kind', 'z_score')}), split train: "
        expected = [where + each.strip() for each in words.split(";") if each.strip()]
        assert _messages(_column(**column), **yaml.safe_load(limits)) == expected, line


def test_shares_and_ids_count_in_any_split_and_the_rest_in_train_alone():
    assert _messages(_column(), _column("eval", mean=0.31, std=2.0)) == []
    assert _messages(_column(), _column("eval", non_finite=3)) == [
        "column 'fare' (z_score), split eval: non_finite_share 0.003 is above 0: 3 of 1000 values "
        "are NaN or infinite (normalization.max_non_finite_share)"
    ]
    assert _messages(_column(**IDS, max=9.0), _column("eval", **IDS, max=10.0)) == [
        "column 'fare' (vocabulary), split eval: max 10 is above 9, the last id "
        "(normalization.ignore)"
    ]


def test_a_train_split_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"have no split 'train'.*'eval'"):
        _messages(_column("eval"))


RAW = {
    "fare": {"low": 1.0, "high": 3.0},
    "flat": {"low": 5.0, "high": 5.0},
    "city": {"labels": ("", "Ulm")},
    "street": {"labels": ("b", "a")},
}


def test_a_constant_that_the_raw_data_had_not_is_a_violation():
    raw = [
        RawColumn(name=name, split="train", values=3, missing=0, bars=(3.0,), **values)
        for name, values in RAW.items()
    ]

    def lost(name: str, limits: dict | None = None, **changes) -> list[str]:
        column = _column(**{**CONSTANT, "name": name, **changes})
        train = SplitStatistics(split="train", rows=3, columns=(column,))
        found = lost_columns(train, raw, {name: name}, NormalizationLimits.of(limits))
        return [violation.message for violation in found]

    assert lost("fare") == [
        "column 'fare' (z_score), split train: every value is 0, but the raw column 'fare' goes "
        "from 1 to 3: clip, scale or encoding lost its values; normalization.ignore names columns "
        "that may be so (normalization.ignore)"
    ]
    assert "goes from 'a' to 'b'" in lost("street", kind="vocabulary")[0]
    assert lost("fare", {"ignore": ["fare"]}) == lost("fare", constant=False) == []
    assert lost("street", kind="one_hot", is_aspect=True) == []
    assert lost("flat") == lost("city") == lost("derived") == []
