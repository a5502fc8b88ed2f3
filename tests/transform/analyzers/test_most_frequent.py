"""The most frequent value: exact where few values differ, within the stated error elsewhere.

Reference: collections.Counter over all rows; of equal counts the smallest value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from transform import FeatureSpec
from transform.analyzers.most_frequent import MostFrequentCombiner

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
        found = _merged(MostFrequentCombiner(1, is_text=is_text), parts)
        assert found == expected or (found != found and expected != expected)


@pytest.mark.parametrize("shards", [1, 2, 50])
def test_with_more_values_than_are_counted_the_error_is_the_stated_one(shards: int) -> None:
    """100,000 values, 50 counted: any value found is at most rows / 51 rarer than the top one."""
    rng = np.random.default_rng(3)
    rows, counted = 100_000, 50
    x = np.where(rng.random(rows) < 0.05, 7.0, np.floor(rng.pareto(0.3, rows) * 100))
    combiner = MostFrequentCombiner(1, is_text=False, counted=counted)
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


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        ({"date": {"parts": "hour"}}, "encode: date, where missing has a separate id"),
        ({"multi_hot": {"top_k": 3}}, "encode: multi_hot, where missing has a separate column"),
    ],
)
def test_it_is_refused_where_no_single_value_is_missing(
    encode: dict[str, Any], message: str
) -> None:
    group = {"name": "g", "columns": "a", "impute": "most_frequent", "encode": encode}
    with pytest.raises(ValueError, match=message):
        FeatureSpec.model_validate({"groups": [group]})
