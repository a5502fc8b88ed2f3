"""Merging statistics: any split into batches, in any order, gives the statistics of the whole.

Reference: NumPy in float64 over all rows at once; tolerance 1e-6 relative to the spread.

z_score per key against float64 NumPy, group by group.

Reference: NumPy over the rows of each key; tolerance 1e-6 of the output's unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

tf = pytest.importorskip("tensorflow")

from transform.analyzers.moments import _batch_moments, _KeyedMomentsCombiner, _MomentsCombiner  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.numbers import scaled  # noqa: E402
from transform.spec.group import Group, ResolvedGroup  # noqa: E402

NAN = float("nan")
NUMBERS = st.floats(-1e12, 1e12, allow_nan=False, allow_subnormal=False) | st.just(NAN)


def _numpy(x: np.ndarray) -> np.ndarray:
    """Count, mean, variance, minimum, maximum per column; [5, n]."""
    columns = []
    for column in x.T:
        present = column[~np.isnan(column)]
        if present.size:
            columns.append(
                [present.size, present.mean(), present.var(), present.min(), present.max()]
            )
        else:
            columns.append([0, 0, 0, np.inf, -np.inf])
    return np.asarray(columns, np.float64).T


def _merged(parts: list[np.ndarray]) -> np.ndarray:
    combiner = _MomentsCombiner(parts[0].shape[1])
    accumulators = [
        combiner.add_input(combiner.create_accumulator(), [_batch_moments(part).numpy()])
        for part in parts
    ]
    coder = combiner.accumulator_coder
    accumulators = [coder.decode_cache(coder.encode_cache(a)) for a in accumulators]
    (output,) = combiner.extract_output(combiner.merge_accumulators(accumulators))
    return np.concatenate([output[:2], output[2:3] / np.maximum(output[:1], 1), output[3:]])


def _assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    spread = np.sqrt(expected[2]) + 1e-9 * np.abs(np.nan_to_num(expected[1])) + 1e-300
    np.testing.assert_array_equal(found[0], expected[0])
    assert (np.abs(found[1] - expected[1]) <= 1e-6 * spread).all()
    # TensorFlow flushes a denormal variance to 0.
    assert (np.abs(found[2] - expected[2]) <= 1e-6 * spread**2 + 1e-300).all()
    np.testing.assert_array_equal(found[3:], expected[3:])


@settings(max_examples=60)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=NUMBERS),
    st.floats(-1e9, 1e9),
    st.integers(1, 50),
    st.randoms(use_true_random=False),
)
def test_any_split_and_order_gives_numpys_statistics(
    x: np.ndarray, offset: float, shards: int, random: Any
) -> None:
    x = x + offset
    parts = [part for part in np.array_split(x, shards) if len(part)]
    random.shuffle(parts)
    _assert_close(_merged(parts), _numpy(x))


NAN_of_per_key = float("nan")
NUMBERS_of_per_key = st.floats(-1e6, 1e6, allow_subnormal=False, width=32) | st.just(NAN_of_per_key)


def _group(**chain: Any) -> Group:
    group = {"name": "g", "columns": "x*", "scale": {"z_score": {"by": "key"}}, **chain}
    return Group.model_validate(group)


def _function(group: Group, width: int) -> Any:
    names = tuple(f"x{i}" for i in range(width))

    def function(rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        x, keys = rows
        raw = {name: tf.constant(x[:, i]) for i, name in enumerate(names)}
        raw["key"] = tf.constant(keys.tolist(), tf.string)
        columns = DenseColumns(raw, numbers=names, texts=["key"])
        (block,) = scaled([ResolvedGroup(group, names)], columns)
        return block.values.numpy()

    return function


def _reference(x: np.ndarray, keys: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for column in range(x.shape[1]):
        of_all = x[~np.isnan(x[:, column]), column]
        for key in np.unique(keys):
            rows = keys == key
            values = x[rows, column]
            present = values[~np.isnan(values)]
            known = present if present.size else of_all
            if known.size == 0 or known.min() == known.max():
                continue
            mean, std = known.mean(), known.std()
            found[rows, column] = (np.where(np.isnan(values), mean, values) - mean) / std
    return found


@settings(max_examples=15)
@given(
    data=st.data(), offset=st.sampled_from([0.0, 1e9, -3e12]), shards=st.sampled_from([1, 2, 50])
)
def test_every_key_is_scaled_by_itself(analyze: Any, data: Any, offset: float, shards: int) -> None:
    rows, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    # Integers beside a huge offset: what float64 holds of the fraction is not what is tested.
    x = (
        np.round(data.draw(hnp.arrays(np.float64, (rows, width), elements=NUMBERS_of_per_key)))
        + offset
    )
    texts = st.sampled_from(["", "a", "b", "key"])
    keys = np.asarray(data.draw(st.lists(texts, min_size=rows, max_size=rows)), object)
    parts = zip(np.array_split(x, shards), np.array_split(keys, shards), strict=True)
    found = analyze(_function(_group(), width), list(parts), (x, keys))
    np.testing.assert_allclose(found, _reference(x, keys), rtol=1e-6, atol=1e-6)


def test_an_unseen_key_is_scaled_by_all_rows(analyze: Any) -> None:
    x = np.asarray([[1.0], [3.0], [10.0], [30.0], [NAN_of_per_key]])
    keys = np.asarray(["a", "a", "b", "b", "c"], object)
    unseen = (
        np.asarray([[4.0], [NAN_of_per_key], [4.0], [7.0]]),
        np.asarray(["z", "z", "c", ""], object),
    )
    found = analyze(_function(_group(), 1), [(x, keys)], unseen)[:, 0]
    mean, std = np.nanmean(x), np.nanstd(x)
    expected = [(4 - mean) / std, 0.0, (4 - mean) / std, (7 - mean) / std]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_key_with_one_value_gives_0_for_any_other(analyze: Any) -> None:
    rows = (np.asarray([[5.0], [1.0], [2.0]]), np.asarray(["one", "two", "two"], object))
    unseen = (np.asarray([[9.0]]), np.asarray(["one"], object))
    assert analyze(_function(_group(), 1), [rows], unseen).tolist() == [[0.0]]


def test_other_imputed_values_are_of_the_whole_column(analyze: Any) -> None:
    for impute, filling in [({"constant": 4.0}, 4.0), ("median", 10.0), ("most_frequent", 10.0)]:
        x = np.asarray([[1.0], [3.0], [NAN_of_per_key], [10.0], [10.0], [30.0]])
        keys = np.asarray(["a", "a", "a", "b", "b", "b"], object)
        found = analyze(_function(_group(impute=impute), 1), [(x, keys)], (x, keys))[:, 0]
        np.testing.assert_allclose(found[2], (filling - 2.0) / 1.0, rtol=1e-6)


def test_more_keys_than_the_cap_are_an_error_that_names_group_and_column() -> None:
    combiner = _KeyedMomentsCombiner(1, 3, "group 'g': scale.z_score.by='zip'")
    accumulators = [
        combiner.add_input(combiner.create_accumulator(), [np.asarray(keys), np.zeros([2, 1])])
        for keys in ([1, 2], [3, 4])
    ]
    with pytest.raises(ValueError, match=r"group 'g': .*by='zip' has more than max_keys=3 keys: "):
        combiner.merge_accumulators(accumulators)
