"""Columns of any storage become one matrix, once per trace.

Reference: the rows that the columns were made of, exactly.

Lists of a fixed length, position by position, against NumPy in float64.

Tolerance: 1e-6 (outputs are float32); serving bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from transform import dense_numbers, dense_texts, preprocessing_fn  # noqa: E402
from transform.columns.inputs import DenseColumns, split_lists, stack_numbers, stack_texts  # noqa: E402
from transform.columns.numbers import scaled  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

NAN = float("nan")
STORAGES = ("vector", "dense", "sparse", "ragged")


def _column(values: list[Any], storage: str, dtype: Any, empty: Any) -> Any:
    """`values` with None where absent; a dense storage holds `empty` there."""
    if storage in ("vector", "dense"):
        column = tf.constant([empty if v is None else v for v in values], dtype)
        return column if storage == "vector" else column[:, tf.newaxis]
    if storage == "ragged":
        return tf.ragged.constant([[] if v is None else [v] for v in values], dtype, ragged_rank=1)
    rows = [i for i, v in enumerate(values) if v is not None]
    present = tf.constant([v for v in values if v is not None], dtype)
    indices = np.asarray([[i, 0] for i in rows], np.int64).reshape(-1, 2)
    return tf.SparseTensor(indices, present, [len(values), 1])


# TensorFlow reads a denormal float32 as 0 on the CPU.
NUMBERS = st.none() | st.floats(width=32, allow_subnormal=False)
TABLES = st.integers(1, 6).flatmap(
    lambda rows: st.lists(
        st.tuples(st.lists(NUMBERS, min_size=rows, max_size=rows), st.sampled_from(STORAGES)),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=60)
@given(TABLES, st.randoms(use_true_random=False))
def test_any_mix_of_storages_is_stacked(table: list[Any], random: Any) -> None:
    columns = {
        f"c{i}": _column(values, storage, tf.float32, NAN)
        for i, (values, storage) in enumerate(table)
    }
    names = list(columns)
    random.shuffle(names)
    raw = np.asarray([[NAN if v is None else v for v in values] for values, _ in table]).T
    raw = np.where(np.isfinite(raw), raw, NAN)
    expected = raw[:, [int(name[1:]) for name in names]]
    np.testing.assert_array_equal(stack_numbers(columns, names).numpy(), expected)
    np.testing.assert_array_equal(dense_numbers(columns["c0"]).numpy(), raw[:, 0])


def test_integers_are_texts_too() -> None:
    for storage in STORAGES:
        columns = {
            "number": _column([17031081500, 0, 5], storage, tf.int64, 0),
            "word": _column(["a", None, "b"], storage, tf.string, ""),
        }
        expected = [[b"a", b"17031081500"], [b"", b"0"], [b"b", b"5"]]
        assert stack_texts(columns, ["word", "number"]).numpy().tolist() == expected
        assert dense_texts(columns["word"]).numpy().tolist() == [b"a", b"", b"b"]


def test_a_use_takes_its_columns_out_of_the_one_stack() -> None:
    for names in [["b", "c"], ["c", "a"], ["a", "b", "c"], ["c"]]:
        columns = {name: _column([i + 0.5, None], "sparse", tf.float32, NAN) for i, name in
                   enumerate("abc")}  # fmt: skip
        columns["word"] = _column(["x", None], "sparse", tf.string, "")
        dense = DenseColumns(columns, numbers=["a", "b", "c"], texts=["word"])
        np.testing.assert_array_equal(dense.numbers(names), stack_numbers(columns, names))
        assert dense.texts(["word"]).numpy().tolist() == [[b"x"], [b""]]


def test_all_columns_that_hold_a_second_value_are_named() -> None:
    two = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [1.0, 2.0, 3.0], [2, 2])
    one = tf.SparseTensor([[0, 0]], [1.0], [2, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="in a row of column b, d"):
        stack_numbers({"a": one, "b": two, "c": one, "d": two}, ["a", "b", "c", "d"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="in a row of column b"):
        stack_numbers({"b": two}, ["b"])


def test_a_trace_densifies_numbers_once_and_texts_once() -> None:
    """Whatever the number of groups and kinds: densifying is most of what a trace costs."""
    spec = {
        "groups": [
            {"name": "z", "columns": "z", "scale": "z_score"},
            {"name": "i", "columns": "i", "encode": {"integer": {"size": 3}}},
            {"name": "b", "columns": "b", "encode": {"bucketize": {"buckets": 3}}},
            {"name": "m", "columns": "m", "scale": "min_max"},
            {"name": "v", "columns": "v", "encode": "vocabulary"},
            {"name": "h", "columns": "h", "encode": {"hash": {"buckets": 3}}},
        ]
    }
    types = {"i": tf.int64, "v": tf.string, "h": tf.string}
    with tf.Graph().as_default() as graph:
        inputs = {
            name: tf.compat.v1.sparse_placeholder(types.get(name, tf.float32), [None, None])
            for name in "zibmvh"
        }
        preprocessing_fn(inputs, {"features": spec})
    scattered = [op for op in graph.get_operations() if op.type == "TensorScatterUpdate"]
    kinds = sorted(op.outputs[0].dtype.name for op in scattered)
    assert kinds == ["float64", "float64", "string"]  # float and int columns, and texts


def test_each_position_of_a_list_has_its_own_statistics(analyze: Any) -> None:
    """Reference: NumPy in float64, to 1e-6."""
    rng = np.random.default_rng(11)
    vector = (rng.normal(size=[300, 3]) * [1.0, 10.0, 1e4] + [0.0, 5.0, 1e5]).astype(np.float32)
    vector[rng.random([300, 3]) < 0.1] = np.nan
    group = {"name": "g", "columns": "v", "length": 3, "scale": "z_score"}

    def function(rows: np.ndarray) -> Any:
        whole = [ResolvedGroup(Group.model_validate(group), ("v",))]
        groups, columns = split_lists(whole, {"v": tf.constant(rows)})
        assert groups[0].columns == ("v_0", "v_1", "v_2")
        return scaled(groups, DenseColumns(columns, numbers=groups[0].columns, texts=[]))[0].values

    found = analyze(function, np.array_split(vector, 3), vector)
    exact = vector.astype(np.float64)
    expected = (exact - np.nanmean(exact, axis=0)) / np.nanstd(exact, axis=0)
    np.testing.assert_allclose(found, np.nan_to_num(expected), atol=1e-6)


def _split(column: Any, length: int = 2) -> list[list[float]]:
    group = Group.model_validate({"name": "g", "columns": "v", "length": length, "scale": "none"})
    (resolved,), columns = split_lists([ResolvedGroup(group, ("v",))], {"v": column})
    assert resolved.columns == tuple(f"v_{i}" for i in range(length))
    return np.stack([columns[name].numpy() for name in resolved.columns], axis=1).tolist()


def test_any_storage() -> None:
    values = [[1.0, 2.0], [3.0, 4.0]]
    assert _split(tf.constant(values)) == values
    assert _split(tf.ragged.constant(values)) == values
    assert _split(tf.constant([1.0, 2.0]), length=1) == [[1.0], [2.0]]
    sparse = tf.SparseTensor([[2, 0], [2, 1]], [5, 6], [3, 2])
    np.testing.assert_array_equal(_split(sparse), [[np.nan] * 2, [np.nan] * 2, [5.0, 6.0]])


def test_a_list_of_another_length_is_refused_by_name() -> None:
    for column in [[1.0, 2.0], [[1.0], [2.0]]]:
        with pytest.raises(ValueError, match="'v' holds 1 values in each row, and length: 2"):
            _split(tf.constant(column))
    for row in [[1.0], [1.0, 2.0, 3.0]]:
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"column v \(group g\) holds another number of .* than length: 2, {len(row)}",
        ):
            _split(tf.ragged.constant([[1.0, 2.0], row, []]).to_sparse())
