"""Names of tensorflow_transform that are not public do what we rest on."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform import compat  # noqa: E402
from transform.analyzers.moments import _MomentsCombiner  # noqa: E402


def test_a_combiner_becomes_tensors_of_the_declared_shape() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [5, 3])
        (merged,) = compat.combine(_MomentsCombiner(3), x, name="of_ours")
        assert (merged.dtype, merged.shape.as_list()) == (tf.float64, [5, 3])
        assert any(op.name.startswith("of_ours") for op in graph.get_operations())


def test_the_cache_keeps_every_bit() -> None:
    coder = _MomentsCombiner(1).accumulator_coder
    values = [0.1, float("inf"), 5e-324]
    assert coder.decode_cache(coder.encode_cache(values)).tolist() == values
