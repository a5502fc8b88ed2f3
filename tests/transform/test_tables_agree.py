"""Each encoder and scaler is in the tables of the spec and of the validator, and in the docs."""

from __future__ import annotations

import pathlib
from typing import get_args

import pytest

pytest.importorskip("tensorflow")

from components.normalization_validator.check import RULES
from transform.encode.table import ENCODERS
from transform.scale.table import SCALERS
from transform.spec.encoders import Encode
from transform.spec.features import _CROSS_ENCODERS
from transform.spec.group import Scale

ROOT = pathlib.Path(__file__).parents[2]
README, NORMALISATION = ROOT / "transform" / "README.md", ROOT / "docs" / "normalisation.md"


def test_tables_agree() -> None:
    assert set(Encode.model_fields) == set(ENCODERS)
    assert {name for name, e in ENCODERS.items() if e.of_texts} == set(_CROSS_ENCODERS)
    assert all(name == each.name for table in (ENCODERS, SCALERS) for name, each in table.items())
    rules = [scaler.validation_rule for scaler in SCALERS.values() if scaler.validation_rule]
    assert {rule.name for rule in rules if not rule.bounds} == set(RULES)
    assert not {rule.name for rule in rules if rule.bounds} & set(RULES)


def test_the_docs_name_it() -> None:
    """Every one has its row in the README, and a scale its formula in docs/normalisation.md."""
    for name in [*Encode.model_fields, *get_args(Scale)]:
        pages = [README, *([NORMALISATION] if name in get_args(Scale) else [])]
        for page in pages:
            lines = page.read_text(encoding="utf-8").splitlines()
            assert any(f"`{name}" in line for line in lines), f"{page} does not mention {name}"
