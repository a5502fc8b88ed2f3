"""Defaults of a group that follow from its other steps.

The steps of a number: bounds that make sense, and which scale was meant.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from transform.spec.group import Group


def _group(**options: Any) -> Group:
    return Group.model_validate({"name": "g", "columns": ["x", "v[0]", "y*"], **options})


def test_what_a_missing_number_becomes() -> None:
    for options, filling in [
        ({"scale": "z_score"}, "mean"),
        ({"scale": "robust"}, "median"),
        ({"scale": "gaussian"}, "median"),
        ({"scale": "min_max", "clip": {"quantiles": [0.1, 0.9]}}, "median"),
        ({"scale": "robust", "impute": "mean"}, "mean"),
        ({"scale": "robust", "impute": {"constant": 3}}, 3.0),
        ({"scale": {"z_score": {"by": "k"}}}, "mean"),
    ]:
        assert _group(**options).filling == filling


def test_kind_key_and_names() -> None:
    by_key = _group(scale={"z_score": {"by": "k"}})
    assert (by_key.kind, by_key.by) == ("z_score_by_key", "k")
    assert by_key.explicit == ("x",)
    assert (_group(scale="none").by, _group(encode="vocabulary").kind) == (None, "vocabulary")


def test_only_ids_that_mean_the_same_in_each_column_are_shared() -> None:
    for step, named in [
        ({"scale": "z_score"}, "scale"),
        ({"encode": {"bucketize": {"buckets": 3}}}, "encode: bucketize"),
        ({"encode": "text"}, "encode: text"),
    ]:
        with pytest.raises(
            ValidationError, match=f"share: true does not go with {named}; remove it"
        ):
            _group(**step, share=True)
        assert _group(encode={"integer": {"size": 3}}, share=True).share
