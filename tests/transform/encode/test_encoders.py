"""Vocabularies: shared, cut by a count, of nothing, of a label; others: test_contract.py."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

tf = pytest.importorskip("tensorflow")

from transform import column_chains  # noqa: E402

ROWS = 1000
RNG = np.random.default_rng(7)


def _draw(values: str, share: float) -> list[str | None]:
    """Values of which the first are the most frequent, and some missing ones."""
    places = RNG.geometric(share, ROWS)
    return [values[p - 1] if p <= len(values) else None for p in places]


COLUMNS = {
    "company": [["a", "b", "b", "c", "c", "c", None, ""][i] for i in RNG.integers(0, 8, ROWS)],
    "never": [None] * (ROWS - 1) + [""],
    "never_number": [None] * ROWS,
    "often": [["x", "y", "z"][min(int(v), 2)] for v in RNG.exponential(0.4, ROWS)],
    "from": _draw("abcdef", 0.5),
    "to": _draw("fedcxy", 0.9),
    "animal": ["cat", "dog", "cat", "cow"] * (ROWS // 4),
}
LEARNED = {"vocabulary": {"top_k": 2, "oov_buckets": 3}}
SHARED = {"encode": {"vocabulary": {"top_k": 5}}, "impute": "most_frequent", "share": True}
SPEC = {
    "groups": [
        {"name": "words", "columns": ["company", "never"], "encode": LEARNED},
        {"name": "tenths", "columns": "never_number", "encode": {"bucketize": {"buckets": 10}}},
        {"name": "often", "columns": "often", "encode": {"vocabulary": {"min_count": 50}}},
        {"name": "places", "columns": ["from", "to"], **SHARED},
    ],
    "label": {"column": "animal", "kind": "multiclass"},
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, batch_size=250)


def _size(result: Any, name: str) -> int:
    (column,) = (c for c in result.layout.columns if c.name == name)
    return column.vocabulary_size


@pytest.mark.slow
def test_a_vocabulary_of_values_that_are_frequent_enough(result: Any, assets: Any) -> None:
    """Reference: pandas' counts."""
    counts = pd.Series(COLUMNS["often"]).value_counts()
    kept = counts[counts >= 50].index.tolist()
    assert 0 < len(kept) < len(counts)
    assert assets(result)["often"] == kept
    expected = [kept.index(v) if v in kept else len(kept) for v in COLUMNS["often"]]
    assert result.column("often").tolist() == expected
    assert _size(result, "often") == len(kept) + 2


@pytest.mark.slow
def test_columns_that_share_a_vocabulary(result: Any, assets: Any) -> None:
    """Reference: Counter over the values of both columns."""
    columns = {name: COLUMNS[name] for name in ("from", "to")}
    counts = Counter(v for values in columns.values() for v in values if v is not None)
    kept = [value for value, _ in counts.most_common(5)]
    assert len(counts) > 5
    assert assets(result)["from"] == kept
    assert "to" not in assets(result)
    for name, values in columns.items():
        most_frequent = Counter(v for v in values if v is not None).most_common(1)[0][0]
        filled = [most_frequent if v is None else v for v in values]
        expected = [kept.index(v) if v in kept else 5 for v in filled]
        assert result.column(name).tolist() == expected
        assert _size(result, name) == 5 + 2
    shared = {c.name: c.shared_ids for c in result.layout.columns if c.shared_ids}
    assert shared == {"from": "places", "to": "places"}
    steps = {chain.column: chain.steps[-1].numbers for chain in column_chains(result.uri)}
    assert steps["to"]["share"] is True
    assert "share" not in steps["company"]
    result.check_serving(alone=(0,))


@pytest.mark.slow
def test_classes_by_name(result: Any, assets: Any) -> None:
    classes = assets(result)["label_classes"]
    assert sorted(classes) == ["cat", "cow", "dog"]
    assert result.written["animal"].dtype == np.int64
    assert [classes[id] for id in result.written["animal"][:, 0]] == COLUMNS["animal"]
    assert result.layout.label.classes == 3


@pytest.mark.slow
def test_columns_without_values_have_the_missing_id(result: Any) -> None:
    for name in ("never", "never_number"):
        assert set(result.column(name)) == {_size(result, name) - 1}


@pytest.mark.slow
def test_several_values_in_a_row_are_refused_by_name(result: Any) -> None:
    raw = result.raw()
    rows = raw["company"].dense_shape[0]
    raw["company"] = tf.SparseTensor([[0, 0], [0, 1]], ["a", "b"], [rows, 2])
    message = r"in a row of column company \(group words, encode: vocabulary\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        result.output.transform_raw_features(raw)
