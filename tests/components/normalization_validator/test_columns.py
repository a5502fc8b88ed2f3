"""What the layout says of a column reaches the validator; what it cannot know is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator.columns import FeatureSet, read_feature_set


def _read(folder: Path, *columns: dict[str, Any]) -> FeatureSet:
    rest = {"source": "x", "group": "g", "kind": "of_ours", "output": "packed_float"}
    described = [
        {"name": f"c{i}", "position": i, **rest, **column} for i, column in enumerate(columns)
    ]
    layout = {"format": "tfx-largebatch/feature_layout", "version": 1, "columns": described}
    schema = schema_pb2.Schema()
    feature = schema.feature.add(name="packed_float", type=schema_pb2.FLOAT)
    feature.shape.dim.add(size=len(columns))
    for name, text in (
        ("transform_fn/assets/feature_layout", json.dumps(layout)),
        ("transformed_metadata/schema.pbtxt", text_format.MessageToString(schema)),
    ):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return read_feature_set(str(folder))


def test_limits_that_it_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'c0' the validation rule 'rank' .* knows z_score, "):
        _read(tmp_path, {"judged_as": "rank"})


def test_of_a_text_one_column_is_looked_at(tmp_path: Path) -> None:
    """Its places are filled by weight: a split with longer texts moves all of them alike."""
    terms = [
        {"name": f"a_term_{i}", "source": "a", "kind": "text", "vocabulary_size": 9}
        for i in range(3)
    ]
    weights = [{"name": f"a_weight_{i}", "source": "a", "kind": "text_weight"} for i in range(3)]
    found = _read(tmp_path, *terms, *weights, {"name": "x", "kind": "z_score"})
    assert found.column_names() == ["a_term_0", "x"]
