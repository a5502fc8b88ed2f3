"""The layout in a graph that Transform wrote; its JSON: tests/shared_core."""

from __future__ import annotations

from trainer_module import FeatureLayout


def test_vocabulary_sizes_are_counted_in_the_graph(packed):
    layout = FeatureLayout.from_transform_graph(packed.graph)
    assert layout is not None
    sizes = {column.name: column.vocabulary_size for column in layout.columns if column.is_id}
    assert sizes == {"company": 4 + 1, "hour": 24}  # 4 companies and one id for others
