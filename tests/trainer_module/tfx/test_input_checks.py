"""The file beside a model says which outputs show an input that the model does not know."""

from __future__ import annotations

import json
from typing import Any

from shared_core.feature_layout import Column, FeatureLayout
from trainer_module.tfx.input_checks import FILE, input_checks, write_input_checks


def column(name: str, kind: str, position: int, **more: Any) -> Column:
    values = {"source": name, "group": "g", "output": "packed_int", **more}
    return Column(name=name, kind=kind, position=position, **values)


LAYOUT = FeatureLayout(
    columns=(
        column("town", "vocabulary", 0, vocabulary="town", vocabulary_size=6, extra_ids=2),
        column("hour", "integer", 1, vocabulary_size=26),
        column("all", "vocabulary", 3, vocabulary="all", vocabulary_size=6),
        column("size", "z_score", 0, output="packed_float"),
        column("kind=a", "one_hot", 1, source="kind", output="packed_float"),
        column("kind_other", "one_hot", 2, source="kind", output="packed_float"),
        column("day_month", "date", 2, source="day", vocabulary_size=13),
        column("day_elapsed", "elapsed", 3, source="day", output="packed_float"),
        *(column(f"x{i}", "z_score", 4 + i, output="packed_float") for i in range(30)),
        column("at_hour_sin", "cyclic", 34, source="at", output="packed_float"),
    ),
    missing="packed_missing",
)


def test_ids_of_unseen_values_and_bits_of_dates():
    packed_int, packed_float = {"output": "packed_int"}, {"output": "packed_float"}
    missing = {"output": "packed_missing"}
    assert input_checks(LAYOUT) == {
        # Ids 0 to 3 are values, 4 is an unseen one, 5 a missing one.
        "categories": [
            {"column": "town", **packed_int, "position": 0, "ids": [4, 4]},
            {"column": "hour", **packed_int, "position": 1, "ids": [24, 24]},
            {"column": "kind", **packed_float, "position": 2, "ids": [1, 1]},
        ],
        "dates": [
            {"column": "day", **missing, "word": 0, "bit": 6},
            {"column": "at", **missing, "word": 1, "bit": 6},
        ],
    }


def test_without_a_mask_no_date_is_checked():
    assert input_checks(LAYOUT.model_copy(update={"missing": None}))["dates"] == []


def test_the_file_has_a_version(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    write_input_checks(str(tmp_path), LAYOUT)
    written = json.loads((tmp_path / FILE).read_text())
    assert written == {"version": 1, **input_checks(LAYOUT)}
