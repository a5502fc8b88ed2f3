"""The reader of what Transform writes; both sides test the same JSON literal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_module import FeatureLayout

LITERAL = Path(__file__).parents[2] / "data" / "feature_layout_v1.json"


def test_it_reads_the_literal_that_transform_writes():
    layout = FeatureLayout.from_json(LITERAL.read_text())
    assert layout.names("packed_float") == ("fare", "fare_missing", "trip_miles")
    assert layout.names("packed_int") == ("company", "trip_start_hour")
    assert [c.name for c in layout.int_columns] == ["company", "trip_start_hour"]
    assert [c.name for c in layout.float_columns] == ["fare", "fare_missing", "trip_miles"]
    assert layout.missing == "packed_missing"
    assert layout.label is not None
    assert (layout.label.name, layout.label.kind) == ("tip_over_20_percent", "binary")


def test_vocabulary_sizes_are_counted_in_the_graph(packed):
    layout = FeatureLayout.from_transform_graph(packed.graph)
    assert layout is not None
    sizes = {column.name: column.vocabulary_size for column in layout.int_columns}
    assert sizes == {"company": 4 + 1, "hour": 24}  # 4 companies and one id for others


def test_a_graph_without_a_layout_has_none(transformed):
    assert FeatureLayout.from_transform_graph(transformed.graph) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a feature layout"),
        ({"version": 2}, "version 2, this trainer reads 1"),
        ({"columns": [{"name": "fare"}]}, "damaged"),
    ],
)
def test_what_it_cannot_read_is_refused(change, message):
    document = {**json.loads(LITERAL.read_text()), **change}
    with pytest.raises(ValueError, match=message):
        FeatureLayout.from_json(json.dumps(document))


def test_positions_with_a_gap_are_refused():
    document = json.loads(LITERAL.read_text())
    document["columns"][1]["position"] = 5
    with pytest.raises(ValueError, match=r"positions \[0, 2, 5\] of 'packed_float'"):
        FeatureLayout.from_json(json.dumps(document))


def test_what_is_not_json_is_refused():
    with pytest.raises(ValueError, match="is not JSON"):
        FeatureLayout.from_json("{")
