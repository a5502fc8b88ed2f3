"""The graph that `preprocessing_fn` builds: its size is that of the spec, not of the columns.

Packed outputs: places, bits and what the layout says of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

tf = pytest.importorskip("tensorflow")

from transform import FeatureSpec, preprocessing_fn  # noqa: E402
from transform.block import Block, IdCount  # noqa: E402
from transform.preprocessing import _pack, _pack_bits  # noqa: E402
from transform.resolve.output_columns import OutputColumn  # noqa: E402
from transform.scale.table import SCALERS  # noqa: E402


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


SPEC = FeatureSpec.model_validate({"groups": [{"name": "g", "columns": "a", "scale": "none"}]})


def _block(names: tuple[str, ...], values: np.ndarray, size: IdCount | None = None) -> Block:
    missing = tf.constant(values == 0)
    return Block(names, tf.constant(values), names, missing, (size,) * len(names))


def test_columns_take_the_order_of_the_spec() -> None:
    """Blocks of two kinds and dtypes, given in another order."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=[5, 2]).astype(np.float32), np.ones([5, 1], np.float32)
    ids = rng.integers(0, 4, [5, 1])
    wanted = [
        OutputColumn(
            name, name, kind, "g", SCALERS[kind].validation_rule if kind in SCALERS else None
        )
        for name, kind in (
            *(("b", "max_abs"), ("i", "hash")),
            *(("c", "none"), ("a", "z_score")),
        )
    ]
    blocks = [_block(("c",), two), _block(("i",), ids, IdCount(4)), _block(("a", "b"), one)]
    packed = _pack(SPEC, wanted, blocks)
    expected = np.concatenate([one[:, 1:], two, one[:, :1]], axis=1)
    np.testing.assert_array_equal(packed.outputs["packed_float"], expected)
    np.testing.assert_array_equal(packed.outputs["packed_int"], ids)
    assert [(c.name, c.output, c.position) for c in packed.columns] == [
        *(("b", "packed_float", 0), ("i", "packed_int", 0)),
        *(("c", "packed_float", 1), ("a", "packed_float", 2)),
    ]
    assert [c.vocabulary_size for c in packed.columns] == [None, 4, None, None]
    assert [(c.validation_rule, c.bounds) for c in packed.columns] == [
        *(("max_abs", {"min": (-1.0, None), "max": (None, 1.0)}), (None, None)),
        *((None, None), ("z_score", None)),
    ]
    bits = packed.outputs["packed_missing"].numpy()[:, 0]
    np.testing.assert_array_equal(bits >> 1 & 1, ids[:, 0] == 0)


def test_unpacked_columns_are_outputs_of_their_own() -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    wanted = [OutputColumn(name, name, "none", "g") for name in ("b", "a")]
    spec = SPEC.model_copy(update={"packed": False})
    packed = _pack(spec, wanted, [_block(("a", "b"), values)])
    assert set(packed.outputs) == {"a", "b"}
    np.testing.assert_array_equal(packed.outputs["b"], values[:, 1:])
    assert [(c.output, c.position) for c in packed.columns] == [("b", 0), ("a", 0)]
    assert packed.missing is None


@given(hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 100))))
@settings(max_examples=30)
def test_bits_are_packed_by_32(bits: np.ndarray) -> None:
    words = _pack_bits(tf.constant(bits)).numpy()
    assert words.shape == (len(bits), -(-bits.shape[1] // 32))
    for i in range(bits.shape[1]):
        np.testing.assert_array_equal((words[:, i // 32] >> (i % 32)) & 1, bits[:, i])
