"""Lists of a fixed length, position by position, against NumPy in float64.

Tolerance: 1e-6 (outputs are float32); serving bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from transform.columns.fixed_lists import split_lists  # noqa: E402
from transform.columns.types import ResolvedGroup  # noqa: E402
from transform.spec.group import Group  # noqa: E402

ROWS = 300
RNG = np.random.default_rng(11)
VECTOR = (RNG.normal(size=[ROWS, 3]) * [1.0, 10.0, 1e4] + [0.0, 5.0, 1e5]).astype(np.float32)
VECTOR[RNG.random([ROWS, 3]) < 0.1] = np.nan
VECTOR[::7] = np.nan
COUNTS = RNG.integers(0, 50, [ROWS, 2])
COLUMNS: dict[str, list[Any]] = {
    "vector": [None if i % 7 == 0 else row.tolist() for i, row in enumerate(VECTOR)],
    "counts": COUNTS.tolist(),
    "key": [i % 2 for i in range(ROWS)],
}
SPEC: dict[str, Any] = {
    "groups": [
        {
            "name": "embedding",
            "columns": "vector",
            "length": 3,
            "scale": "z_score",
            "missing_indicator": True,
        },
        {"name": "counts", "columns": "counts", "length": 2, "scale": {"z_score": {"by": "key"}}},
    ]
}


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    return run_transform(SPEC, COLUMNS)


@pytest.mark.slow
def test_each_position_has_its_own_statistics(result: Any) -> None:
    names = ["vector_0", "vector_1", "vector_2", "counts_0", "counts_1"]
    floats = result.layout.names("packed_float")
    indicators = [f"vector_{i}_missing" for i in range(3)]
    assert floats == [*names[:3], *indicators, *names[3:]]
    exact = VECTOR.astype(np.float64)
    scaled = (exact - np.nanmean(exact, axis=0)) / np.nanstd(exact, axis=0)
    expected = np.where(np.isnan(scaled), 0.0, scaled)
    found = np.stack([result.column(name) for name in names], axis=1)
    np.testing.assert_allclose(found[:, :3], expected, atol=1e-6)
    for i, name in enumerate(indicators):
        np.testing.assert_array_equal(result.column(name), np.isnan(VECTOR[:, i]))
    for key in range(2):
        part = COUNTS[key::2].astype(np.float64)
        expected = (part - part.mean(axis=0)) / part.std(axis=0)
        np.testing.assert_allclose(found[key::2, 3:], expected, atol=1e-6)


@pytest.mark.slow
def test_serving_gives_the_same_bits_and_the_chains_their_numbers(result: Any) -> None:
    from transform import column_chains

    served = result.output.transform_raw_features(result.raw())["packed_float"].numpy()
    np.testing.assert_array_equal(served, result.written["packed_float"])
    chains = {chain.column: chain for chain in column_chains(result.uri)}
    means = [chains[f"vector_{i}"].steps[-1].numbers["mean"] for i in range(3)]
    np.testing.assert_allclose(means, np.nanmean(VECTOR.astype(np.float64), axis=0), rtol=1e-6)
    assert chains["vector_1"].count == np.sum(~np.isnan(VECTOR[:, 1]))
    assert chains["vector_1"].outputs == ("vector_1", "vector_1_missing")


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


@pytest.mark.parametrize("column", [[1.0, 2.0], [[1.0], [2.0]]])
def test_a_column_without_lists_is_refused_by_name(column: list[Any]) -> None:
    with pytest.raises(ValueError, match="column 'v' holds 1 values in each row, and length: 2"):
        _split(tf.constant(column))


@pytest.mark.parametrize("row", [[1.0], [1.0, 2.0, 3.0]])
def test_a_list_of_another_length_is_refused_by_name(row: list[float]) -> None:
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"column v \(group g\) holds another number of values than length: 2, {len(row)}",
    ):
        _split(tf.ragged.constant([[1.0, 2.0], row, []]).to_sparse())
