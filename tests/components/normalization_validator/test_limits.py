"""The limits: names, globs, and rejected values."""

from __future__ import annotations

import json
import subprocess
import sys

import pydantic
import pytest

from components.normalization_validator.limits import NormalizationLimits


def test_kinds_are_names_or_globs_and_the_first_match_wins():
    limits = NormalizationLimits(kinds={"trip_id": "none", "trip_*": "z_score", "v[0]": "min_max"})
    limits = NormalizationLimits.model_validate_json(limits.model_dump_json())  # keeps their order
    columns = ("trip_id", "trip_miles", "v[0]", "v0")
    assert [limits.kind_of(c) for c in columns] == ["none", "z_score", "min_max", "min_max"]


def test_a_glob_without_a_column_is_refused_with_the_nearest_columns():
    limits = NormalizationLimits(kinds={"trip_mils": "z_score"})
    with pytest.raises(ValueError, match=r"kinds: 'trip_mils' matches no .* example 'trip_miles'"):
        limits.check_names(["fare", "trip_miles"])


def test_unknown_keys_and_wrong_values_are_refused():
    with pytest.raises(pydantic.ValidationError, match=r"z_score\.max_mean\b"):
        NormalizationLimits.of({"z_score": {"max_mean": 1}})
    with pytest.raises(pydantic.ValidationError, match="max_non_finite_share"):
        NormalizationLimits.of({"max_non_finite_share": 2})
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        NormalizationLimits().allow_constant = False  # pyright: ignore


def test_the_fields_that_a_section_adds_stay_out_of_the_parameter():
    class Section(NormalizationLimits):
        on_failure: str = "fail"

    text = NormalizationLimits.of(Section(allow_constant=False)).model_dump_json()
    assert json.loads(text)["allow_constant"] is False
    assert NormalizationLimits.model_validate_json(text) == NormalizationLimits(
        allow_constant=False
    )


def test_limits_import_neither_tensorflow_nor_tfx():
    code = (
        "import sys; from components import NormalizationLimits; NormalizationLimits();"
        "print([m for m in ('tensorflow', 'tfx', 'apache_beam', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
