"""Counts and examples of dates that cannot be read, whatever the shards; exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform.analyzers.unread import DateCounts, UnreadCombiner

SHARDS = [
    (DateCounts([3, 5], [1, 0]), [b"soon", b""]),
    (DateCounts([2, 1], [2, 0]), [b"later", b""]),
    (DateCounts([4, 0], [0, 0]), [b"", b""]),
]


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_any_order_gives_the_sum_and_the_first_example(order: tuple[int, ...]) -> None:
    combiner = UnreadCombiner(2)
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
