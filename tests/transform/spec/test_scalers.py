"""The steps of a number: bounds that make sense, and which scale was meant."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from transform.spec.scalers import Clip, Constant


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
