"""FeatureLayout: one JSON format, read and written."""

from __future__ import annotations

import json
import pathlib

import pytest

from shared_core.feature_layout import FeatureLayout
from transform import FeatureSpec

DATA = pathlib.Path(__file__).parents[1] / "data" / "feature_layout_v1.json"


def test_json_is_the_documented_format() -> None:
    text = DATA.read_text()
    layout = FeatureLayout.from_json(text)
    assert json.loads(layout.to_json()) == json.loads(text)
    assert layout.to_json().isascii()
    assert "\n" not in layout.to_json()  # it is one line of an asset


def test_it_holds_the_spec_that_made_it() -> None:
    text = DATA.read_text()
    features = FeatureSpec.model_validate(FeatureLayout.from_json(text).features)
    kinds = [group.kind for group in features.groups]
    assert kinds == ["z_score", "vocabulary", "integer", "min_max"]
    dumped = features.model_dump(mode="json", exclude_defaults=True)
    assert dumped == json.loads(text)["features"]


def test_names_label_a_packed_vector() -> None:
    layout = FeatureLayout.from_json(DATA.read_text())
    assert layout.names() == ["fare", "fare_missing", "trip_miles"]
    assert layout.names("packed_int") == ["company", "trip_start_hour"]
    assert layout.missing == "packed_missing"
    assert layout.label is not None
    assert (layout.label.name, layout.label.kind) == ("tip_over_20_percent", "binary")


def test_learned_columns_take_the_names_of_their_values(tmp_path: pathlib.Path) -> None:
    """A place without a value keeps its rank."""
    columns = [
        {
            "name": f"tags#{rank}",
            "source": "tags",
            "group": "g",
            "kind": "multi_hot",
            "output": "packed_float",
            "position": rank,
            "entry_of": "tags",
            "entry": rank,
        }
        for rank in range(3)
    ]
    # Another column, with the name of value `red` of `tags`: names stay unique.
    plain = {"name": "tags=red", "source": "tags=red", "kind": "none", "position": 3}
    columns.append({"group": "g", "output": "packed_float", **plain})
    assets = tmp_path / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    layout = FeatureLayout.model_validate({"columns": columns})
    (assets / "feature_layout").write_text(layout.to_json() + "\n")
    (assets / "tags").write_bytes("grün\nred\n".encode())
    read = FeatureLayout.from_transform_graph(str(tmp_path))
    assert read is not None
    assert read.names() == ["tags=grün", "tags=red_1", "tags#2", "tags=red"]


def test_a_graph_of_another_preprocessing_fn_has_none(tmp_path: pathlib.Path) -> None:
    assert FeatureLayout.from_transform_graph(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a feature layout"),
        ({"version": 2}, "version 2, this code reads 1"),
        ({"columns": [{"name": "fare"}]}, "damaged"),
        ({}, r"positions \[0, 2, 5\] of 'packed_float'"),
        (None, "is not JSON"),
    ],
)
def test_what_it_cannot_read_is_refused(change, message):
    document = {**json.loads(DATA.read_text()), **(change or {})}
    if not change:
        document["columns"][1]["position"] = 5
    with pytest.raises(ValueError, match=message):
        FeatureLayout.from_json("{" if change is None else json.dumps(document))


def test_shared_ids_are_written_for_the_columns_that_have_them() -> None:
    document = json.loads(DATA.read_text())
    for column in document["columns"][2:4]:
        column["shared_ids"] = "places"
    layout = FeatureLayout.from_json(json.dumps(document))
    assert [c.shared_ids for c in layout.columns] == [None, None, "places", "places", None]
    assert json.loads(layout.to_json()) == document
