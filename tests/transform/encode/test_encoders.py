"""Ids of every encoder: known, unseen, out of range and missing values each have their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

tf = pytest.importorskip("tensorflow")

from transform import column_chains  # noqa: E402
from transform.encode.lookup import listed_ids  # noqa: E402

pytestmark = pytest.mark.slow
ROWS = 1000
NAN = float("nan")
RNG = np.random.default_rng(7)

COMPANY = [["a", "b", "b", "c", "c", "c", None, ""][i] for i in RNG.integers(0, 8, ROWS)]
TRACT = [[17031081500, 17031320100, None][i] for i in RNG.integers(0, 3, ROWS)]
HOUR = [int(v) for v in RNG.integers(-2, 27, ROWS)]
DAY = [None if v == 0 else int(v) for v in RNG.integers(0, 8, ROWS)]
LATITUDE = [None if v > 1.5 else float(np.float32(v)) for v in RNG.normal(0, 1, ROWS)]
SKEWED = [float(np.float32(v)) for v in RNG.exponential(1, ROWS)]


def _draw(values: str, share: float) -> list[str | None]:
    """Values of which the first are the most frequent, and some missing ones."""
    places = RNG.geometric(share, ROWS)
    return [values[p - 1] if p <= len(values) else None for p in places]


COLUMNS = {
    "company": COMPANY,
    "tract": TRACT,
    "hour": HOUR,
    "day": DAY,
    "latitude": LATITUDE,
    "skewed": SKEWED,
    "skewed_5": SKEWED,
    "never": [None] * (ROWS - 1) + [""],
    "never_number": [None] * ROWS,
    "street": COMPANY,
    "zip code": TRACT,
    "fare": SKEWED,
    "often": [["x", "y", "z"][min(int(v), 2)] for v in RNG.exponential(0.4, ROWS)],
    "listed": COMPANY,
    "listed ints": TRACT,
    "from": _draw("abcdef", 0.5),
    "to": _draw("fedcxy", 0.9),
}
LISTED = ["b", "never there", "c"]
SPEC = {
    "groups": [
        {"name": "hours", "columns": "hour", "encode": {"integer": {"size": 24}}},
        {
            "name": "words",
            "columns": ["company", "tract", "never"],
            "encode": {"vocabulary": {"top_k": 2, "oov_buckets": 3}},
        },
        {"name": "money", "columns": "fare", "scale": "z_score"},
        {"name": "days", "columns": "day", "encode": {"integer": {"size": 8}}},
        {"name": "deciles", "columns": ["latitude"], "encode": {"bucketize": {"buckets": 10}}},
        {"name": "fifths", "columns": ["skewed_5"], "encode": {"bucketize": {"buckets": 5}}},
        {
            "name": "tenths",
            "columns": ["skewed", "never_number"],
            "encode": {"bucketize": {"buckets": 10}},
        },
        {"name": "streets", "columns": ["street"], "encode": {"hash": {"buckets": 50}}},
        {"name": "often", "columns": "often", "encode": {"vocabulary": {"min_count": 50}}},
        {
            "name": "listed",
            "columns": "listed",
            "encode": {"vocabulary": {"values": LISTED, "oov_buckets": 2}},
        },
        {
            "name": "listed ints",
            "columns": "listed ints",
            "encode": {"vocabulary": {"values": [17031320100, 5]}},
        },
        {"name": "zips", "columns": "zip code", "encode": {"hash": {"buckets": 7}}},
        {
            "name": "places",
            "columns": ["from", "to"],
            "encode": {"vocabulary": {"top_k": 5}},
            "impute": "most_frequent",
            "share": True,
        },
    ],
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS, dense=("hour",), batch_size=64)


def _size(result: Any, name: str) -> int:
    (column,) = (c for c in result.layout.columns if c.name == name)
    return column.vocabulary_size


def test_vocabulary_ids_fall_with_frequency(result: Any, assets: Any) -> None:
    ids, size = result.column("company"), _size(result, "company")
    assert size == 2 + 3 + 1
    assert assets(result)["company"] == ["c", "b"]  # top_k: 2
    expected = {"c": 0, "b": 1, None: size - 1, "": size - 1}
    for value, id in zip(COMPANY, ids, strict=True):
        if value == "a":
            assert 2 <= id < 5  # one of three buckets for unseen values
        else:
            assert id == expected[value]


def test_vocabulary_of_integers(result: Any, assets: Any) -> None:
    ids, words = result.column("tract"), assets(result)["tract"]
    expected = {int(word): i for i, word in enumerate(words)} | {None: _size(result, "tract") - 1}
    assert [expected[value] for value in TRACT] == ids.tolist()


def test_a_vocabulary_of_values_that_are_frequent_enough(result: Any, assets: Any) -> None:
    """Reference: pandas' counts."""
    counts = pd.Series(COLUMNS["often"]).value_counts()
    kept = counts[counts >= 50].index.tolist()
    assert 0 < len(kept) < len(counts)
    assert assets(result)["often"] == kept
    expected = [kept.index(v) if v in kept else len(kept) for v in COLUMNS["often"]]
    assert result.column("often").tolist() == expected
    assert _size(result, "often") == len(kept) + 2


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


def test_a_long_given_vocabulary() -> None:
    """Reference: a dict."""
    values = [f"value {i}" for i in range(20_000)]
    texts = [*values[::7], "value", "value 20000", *values[:5]]
    found = listed_ids(tf.constant(texts), values, oov_buckets=3).numpy()
    places = {value: i for i, value in enumerate(values)}
    for text, id in zip(texts, found, strict=True):
        if text in places:
            assert id == places[text]
        else:
            assert 20_000 <= id < 20_003


def test_a_column_without_values_has_only_the_missing_id(result: Any) -> None:
    for name in ("never", "never_number"):
        assert set(result.column(name)) == {_size(result, name) - 1}


def test_unseen_values_get_an_out_of_vocabulary_id(result: Any) -> None:
    raw = result.raw()
    rows = tf.cast(raw["company"].dense_shape[0], tf.int64)
    indices = tf.stack([tf.range(rows), tf.zeros_like(tf.range(rows))], axis=1)
    raw["company"] = tf.SparseTensor(indices, tf.fill([rows], "never seen"), [rows, 1])
    packed = result.output.transform_raw_features(raw)["packed_int"].numpy()
    ids = packed[:, result.layout.names("packed_int").index("company")]
    assert ((ids >= 2) & (ids < 5)).all()


@pytest.mark.parametrize(
    ("name", "values", "buckets"),
    [("latitude", LATITUDE, 10), ("skewed", SKEWED, 10), ("skewed_5", SKEWED, 5)],
)
def test_buckets_are_quantiles(result: Any, name: str, values: list[Any], buckets: int) -> None:
    """Reference: NumPy's quantiles; tolerance: 1 % of the rows, the sketch's stated error."""
    ids = result.column(name)
    x = np.asarray([NAN if v is None else v for v in values])
    missing = np.isnan(x)
    assert (ids[missing] == buckets).all()
    assert _size(result, name) == buckets + 1
    edges = np.nanquantile(x, np.arange(1, buckets) / buckets)
    expected = np.searchsorted(edges, x[~missing], side="right")
    assert np.abs(ids[~missing] - expected).max() <= 1
    counts = np.bincount(ids[~missing], minlength=buckets)
    assert np.abs(counts / counts.sum() - 1 / buckets).max() <= 0.02
    order = np.argsort(x[~missing])
    assert (np.diff(ids[~missing][order]) >= 0).all()


def test_columns_are_packed_in_the_order_of_the_spec(result: Any) -> None:
    assert result.layout.names("packed_float") == ["fare"]
    assert result.layout.names("packed_int") == [
        *("hour", "company", "tract", "never", "day", "latitude", "skewed_5", "skewed"),
        *("never_number", "street", "often", "listed", "listed ints", "zip code", "from", "to"),
    ]
    assert [c.name for c in result.layout.columns][3:6] == ["never", "fare", "day"]


def test_several_values_in_a_row_are_refused_by_name(result: Any) -> None:
    import tensorflow as tf

    raw = result.raw()
    rows = raw["company"].dense_shape[0]
    raw["company"] = tf.SparseTensor([[0, 0], [0, 1]], ["a", "b"], [rows, 2])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"in a row of column company \(group words, encode: vocabulary\)",
    ):
        result.output.transform_raw_features(raw)
