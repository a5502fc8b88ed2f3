"""The most frequent value: exact where few values differ, within the stated error elsewhere.

Reference: collections.Counter over all rows; of equal counts the smallest value.

Rows with a value are counted for every source that no scaler counts, once.

Counts and examples of dates that cannot be read, whatever the shards; exactly.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")
tf = pytest.importorskip("tensorflow")

from transform.analyzers import counts  # noqa: E402
from transform.analyzers.counts import DateCounts, _MostFrequentCombiner, _UnreadCombiner  # noqa: E402
from transform.block import Block  # noqa: E402

NAN = float("nan")
TABLES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, -2.5, 1e9, 1e9 + 1, NAN]),
        st.sampled_from([b"", b"a", b"b", "ü".encode()]),
    ),
    min_size=1,
    max_size=60,
)


def _merged(combiner: Any, parts: list[np.ndarray]) -> Any:
    coder = combiner.accumulator_coder
    accumulators = [
        coder.decode_cache(
            coder.encode_cache(combiner.add_input(combiner.create_accumulator(), [part]))
        )
        for part in parts
    ]
    (found,) = combiner.extract_output(combiner.merge_accumulators(accumulators))
    return found[0]


def _expected(values: list[Any], nothing: Any) -> Any:
    counts = Counter(values)
    return min(counts, key=lambda v: (-counts[v], v)) if counts else nothing


@settings(max_examples=60)
@given(TABLES, st.sampled_from([1, 2, 50]), st.randoms(use_true_random=False))
def test_any_split_and_order_gives_the_same_value(
    table: list[Any], shards: int, random: Any
) -> None:
    numbers = np.asarray([[number] for number, _ in table])
    texts = np.asarray([[text] for _, text in table], object)
    present = numbers[~np.isnan(numbers)].tolist()
    for matrix, is_text, expected in (
        (numbers, False, _expected(present, NAN)),
        (texts, True, _expected([t for t in texts[:, 0] if t], b"")),
    ):
        parts = [part for part in np.array_split(matrix, shards) if len(part)]
        random.shuffle(parts)
        found = _merged(_MostFrequentCombiner(1, is_text=is_text), parts)
        assert found == expected or (found != found and expected != expected)


def test_with_more_values_than_are_counted_the_error_is_the_stated_one() -> None:
    """100,000 values, 50 counted: any value found is at most rows / 51 rarer than the top one."""
    for shards in [1, 2, 50]:
        rng = np.random.default_rng(3)
        rows, counted = 100_000, 50
        x = np.where(rng.random(rows) < 0.05, 7.0, np.floor(rng.pareto(0.3, rows) * 100))
        combiner = _MostFrequentCombiner(1, is_text=False, counted=counted)
        parts = np.array_split(x[:, np.newaxis], shards * 20)
        found = _merged(combiner, parts)
        counts = Counter(x.tolist())
        assert len(counts) > 100 * counted
        assert counts[found] >= max(counts.values()) - rows / (counted + 1)
        (counters,) = combiner.merge_accumulators(
            [combiner.add_input(combiner.create_accumulator(), [part]) for part in parts]
        )
        assert len(counters) <= 2 * counted  # memory
        for value, count in counters.items():
            assert counts[value] - rows / (counted + 1) <= count <= counts[value]


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
        counted = counts.with_counts(blocks, counted={"x"})
        (kept,) = (op for op in graph.get_operations() if op.name.startswith("fitted/"))
        words = [word.decode() for word in kept.node_def.attr["_fitted"].list.s]
        assert words == [counts.PRESENT, "a", "b", "c"]
        # What no output depends on is not in a saved graph.
        assert kept in counted[1].values.op.control_inputs
        assert [block.names for block in counted] == [block.names for block in blocks]


SHARDS = [
    (DateCounts([3, 5], [1, 0]), [b"soon", b""]),
    (DateCounts([2, 1], [2, 0]), [b"later", b""]),
    (DateCounts([4, 0], [0, 0]), [b"", b""]),
]


def test_any_order_gives_the_sum_and_the_first_example() -> None:
    for order in itertools.permutations(range(3)):
        combiner = _UnreadCombiner(2)
        coder = combiner.accumulator_coder
        accumulators = [
            coder.decode_cache(
                coder.encode_cache(
                    combiner.add_input(
                        combiner.create_accumulator(),
                        [np.asarray(counts), np.asarray(examples, object)],
                    )
                )
            )
            for counts, examples in (SHARDS[i] for i in order)
        ]
        counts, examples = combiner.extract_output(combiner.merge_accumulators(accumulators))
        assert DateCounts(*counts.tolist()) == DateCounts([9, 6], [3, 0])
        assert examples.tolist() == [b"later", b""]
