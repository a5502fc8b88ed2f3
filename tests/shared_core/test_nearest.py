"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from shared_core.nearest import nearest, nearest_column


def test_the_closest_name_is_offered_whatever_its_case() -> None:
    assert nearest("TRIP_mils", ["trip_miles", "fare"]) == "did you mean 'trip_miles'?"
    assert nearest("adamw", ["Adam", "AdamW", "SGD"]) == "did you mean 'AdamW'?"


def test_a_name_within_a_section_comes_before_similar_ones() -> None:
    choices = ["scale_learning_rate", "optimizer.learning_rate"]
    assert nearest("learning_rate", choices) == "did you mean 'optimizer.learning_rate'?"


def test_without_a_close_one_the_first_twenty_are_shown() -> None:
    names = [f"v{i:02}" for i in range(25)]
    assert nearest("zzz", names) == f"use one of {', '.join(names[:20])}, ..."
    assert nearest_column("zzz", names[:2]) == "the data has: v00, v01"
    assert nearest_column("area", ["race", "price"]) == "the data has: price, race"
    assert nearest_column("tip", ["tips", "fare"], but=["tips"]) == "the data has: fare"
    assert nearest_column("x", []) == "the data has: no columns"
