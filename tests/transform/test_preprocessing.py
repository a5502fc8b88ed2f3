"""The graph that `preprocessing_fn` builds: its size is that of the spec, not of the columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

tf = pytest.importorskip("tensorflow")

from transform import preprocessing_fn  # noqa: E402
from transform.preprocessing import _pack_bits  # noqa: E402


def test_the_graph_hardly_grows_with_the_number_of_columns() -> None:
    spec = {"groups": [{"name": "g", "columns": "V*", "scale": "z_score"}]}

    def nodes(columns: int, sparse: bool) -> int:
        with tf.Graph().as_default() as graph:
            make = tf.compat.v1.sparse_placeholder if sparse else tf.compat.v1.placeholder
            shape = [None, None if sparse else 1]
            inputs = {f"V{i}": make(tf.float32, shape) for i in range(columns)}
            before = len(graph.get_operations())
            preprocessing_fn(inputs, {"features": spec})
            return len(graph.get_operations()) - before

    assert nodes(97, sparse=True) - nodes(33, sparse=True) == 64
    assert nodes(97, sparse=False) - nodes(33, sparse=False) == 0


@given(hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 100))))
@settings(max_examples=30)
def test_bits_are_packed_by_32(bits: np.ndarray) -> None:
    words = _pack_bits(tf.constant(bits)).numpy()
    assert words.shape == (len(bits), -(-bits.shape[1] // 32))
    for i in range(bits.shape[1]):
        np.testing.assert_array_equal((words[:, i // 32] >> (i % 32)) & 1, bits[:, i])
