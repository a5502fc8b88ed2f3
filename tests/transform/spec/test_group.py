"""Defaults of a group that follow from its other steps.

The steps of a number: bounds that make sense, and which scale was meant.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from transform.spec.group import Clip, Constant, Group


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": ["x", "v[0]", "y*"], **options})


@pytest.mark.parametrize(
    ("options", "filling"),
    [
        ({"scale": "z_score"}, "mean"),
        ({"scale": "robust"}, "median"),
        ({"scale": "gaussian"}, "median"),
        ({"scale": "min_max", "clip": {"quantiles": [0.1, 0.9]}}, "median"),
        ({"scale": "robust", "impute": "mean"}, "mean"),
        ({"scale": "robust", "impute": {"constant": 3}}, 3.0),
        ({"scale": {"z_score": {"by": "k"}}}, "mean"),
    ],
)
def test_what_a_missing_number_becomes(options: dict[str, Any], filling: str | float) -> None:
    assert _group(**options).filling == filling


def test_kind_key_and_names() -> None:
    by_key = _group(scale={"z_score": {"by": "k"}})
    assert (by_key.kind, by_key.by) == ("z_score_by_key", "k")
    assert by_key.explicit == ("x",)
    assert (_group(scale="none").by, _group(encode="vocabulary").kind) == (None, "vocabulary")


@pytest.mark.parametrize("scale", ["z_score", {"z_score": {"by": "k"}}])
def test_the_mean_of_values_clipped_by_learned_bounds_is_refused(scale: Any) -> None:
    with pytest.raises(ValidationError, match="scale: z_score needs statistics of the clipped"):
        _group(scale=scale, clip={"quantiles": [0.1, 0.9]})


@pytest.mark.parametrize(
    ("step", "named"),
    [
        ({"scale": "z_score"}, "scale"),
        ({"encode": {"bucketize": {"buckets": 3}}}, "encode: bucketize"),
        ({"encode": "text"}, "encode: text"),
    ],
)
def test_only_ids_that_mean_the_same_in_each_column_are_shared(step: Any, named: str) -> None:
    with pytest.raises(ValidationError, match=f"share: true does not go with {named}; remove it"):
        _group(**step, share=True)
    assert _group(encode={"integer": {"size": 3}}, share=True).share


def test_neither_scale_nor_encode_names_what_there_is() -> None:
    scales = (
        r"z_score \| min_max \| max_abs \| robust \| gaussian \| power \| log1p \| asinh \| none"
    )
    scales += r" \| \[log1p, z_score\] \| \{z_score: \{by"
    with pytest.raises(ValidationError, match=rf"give exactly one: scale: {scales}"):
        _group()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({}, "clip has no bound"),
        ({"min": 2, "max": 2}, "clip.min=2.0 is not below clip.max=2.0"),
        ({"min": float("-inf")}, "clip.min=-inf is not finite; leave clip.min out"),
        ({"quantiles": [0.9, 0.1]}, "give 0 <= low < high <= 1"),
        ({"quantiles": [0.0005, 1]}, "0.0005 is finer than the sketch's error of 0.001"),
        ({"quantiles": [0, 1], "max": 3}, "clip has both quantiles and min or max"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Clip.model_validate(bounds)


def test_a_missing_value_imputes_nothing() -> None:
    with pytest.raises(ValidationError, match="constant=nan is itself a missing value"):
        Constant(constant=float("nan"))
