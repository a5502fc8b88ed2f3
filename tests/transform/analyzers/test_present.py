"""Rows with a value are counted for every source that no scaler counts, once."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from transform.analyzers import present  # noqa: E402
from transform.block import Block  # noqa: E402


def _block(names: list[str], sources: list[str], missing: list[list[bool]]) -> Block:
    values = tf.zeros([len(missing), len(names)], tf.int64)
    bits = tf.constant(missing)
    return Block(tuple(names), values, tuple(sources), bits, (None,) * len(names))


def test_each_source_is_counted_once() -> None:
    """Which ones; that the numbers are those of the rows, a Beam run shows: test_chains.py."""
    with tf.Graph().as_default() as graph:
        blocks = [
            _block(["x"], ["x"], [[True]]),
            _block(["a_sin", "a_cos", "b"], ["a", "a", "b"], [[True] * 3]),
            _block(["c"], ["c"], [[False]]),
        ]
        counted = present.with_counts(blocks, counted={"x"})
        (kept,) = (op for op in graph.get_operations() if op.name.startswith("fitted/"))
        words = [word.decode() for word in kept.node_def.attr["_fitted"].list.s]
        assert words == [present.PRESENT, "a", "b", "c"]
        # What no output depends on is not in a saved graph.
        assert kept in counted[1].values.op.control_inputs
        assert [block.names for block in counted] == [block.names for block in blocks]


def test_nothing_to_count_leaves_the_blocks_alone() -> None:
    blocks = [_block(["x"], ["x"], [[True]])]
    assert present.with_counts(blocks, counted={"x"}) == blocks
