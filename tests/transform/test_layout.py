"""FeatureLayout: one JSON format, read and written."""

from __future__ import annotations

import json
import pathlib

import pytest

from transform import FeatureLayout, FeatureSpec

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


def test_learned_columns_take_the_names_of_their_values(tmp_path: pathlib.Path) -> None:
    """For this reader and the trainer's; a place without a value keeps its rank."""
    from trainer_module.data.feature_layout import FeatureLayout as TrainersLayout

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
    assets = tmp_path / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    layout = FeatureLayout.model_validate({"columns": columns})
    (assets / "feature_layout").write_text(layout.to_json() + "\n")
    (assets / "tags").write_bytes("grün\nred\n".encode())
    for reader in (FeatureLayout, TrainersLayout):
        read = reader.from_transform_graph(str(tmp_path))
        assert read is not None
        assert list(read.names("packed_float")) == ["tags=grün", "tags=red", "tags#2"]


def test_another_version_or_file_is_refused() -> None:
    document = json.loads(DATA.read_text())
    with pytest.raises(ValueError, match="version 2; this code reads 1"):
        FeatureLayout.from_json(json.dumps({**document, "version": 2}))
    with pytest.raises(ValueError, match="not a feature layout"):
        FeatureLayout.from_json("{}")


def test_a_graph_of_another_preprocessing_fn_has_none(tmp_path: pathlib.Path) -> None:
    assert FeatureLayout.from_transform_graph(str(tmp_path)) is None
