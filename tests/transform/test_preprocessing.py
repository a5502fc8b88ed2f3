"""The graph that `preprocessing_fn` builds: its size is that of the spec, not of the columns."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform import preprocessing_fn  # noqa: E402


@pytest.mark.parametrize(("sparse", "nodes_per_column"), [(True, 1), (False, 0)])
def test_the_graph_hardly_grows_with_the_number_of_columns(
    sparse: bool, nodes_per_column: int
) -> None:
    spec = {"groups": [{"name": "g", "columns": "V*", "scale": "z_score"}]}

    def nodes(columns: int) -> int:
        with tf.Graph().as_default() as graph:
            inputs = {
                f"V{i}": (
                    tf.compat.v1.sparse_placeholder(tf.float32, [None, None])
                    if sparse
                    else tf.compat.v1.placeholder(tf.float32, [None, 1])
                )
                for i in range(columns)
            }
            before = len(graph.get_operations())
            preprocessing_fn(inputs, {"features": spec})
            return len(graph.get_operations()) - before

    assert nodes(97) - nodes(33) == 64 * nodes_per_column
