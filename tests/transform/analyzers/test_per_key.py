"""z_score per key against float64 NumPy, group by group.

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

from transform import FeatureSpec  # noqa: E402
from transform.analyzers.per_key import KeyedMomentsCombiner  # noqa: E402
from transform.columns.inputs import DenseColumns  # noqa: E402
from transform.columns.types import ResolvedGroup  # noqa: E402
from transform.spec.group import Group  # noqa: E402
from transform.steps.numbers import scaled  # noqa: E402

NAN = float("nan")
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False, width=32) | st.just(NAN)


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
    x = np.round(data.draw(hnp.arrays(np.float64, (rows, width), elements=NUMBERS))) + offset
    texts = st.sampled_from(["", "a", "b", "key"])
    keys = np.asarray(data.draw(st.lists(texts, min_size=rows, max_size=rows)), object)
    parts = zip(np.array_split(x, shards), np.array_split(keys, shards), strict=True)
    found = analyze(_function(_group(), width), list(parts), (x, keys))
    np.testing.assert_allclose(found, _reference(x, keys), rtol=1e-6, atol=1e-6)


def test_an_unseen_key_is_scaled_by_all_rows(analyze: Any) -> None:
    x = np.asarray([[1.0], [3.0], [10.0], [30.0], [NAN]])
    keys = np.asarray(["a", "a", "b", "b", "c"], object)
    unseen = (np.asarray([[4.0], [NAN], [4.0], [7.0]]), np.asarray(["z", "z", "c", ""], object))
    found = analyze(_function(_group(), 1), [(x, keys)], unseen)[:, 0]
    mean, std = np.nanmean(x), np.nanstd(x)
    expected = [(4 - mean) / std, 0.0, (4 - mean) / std, (7 - mean) / std]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_key_with_one_value_gives_0_for_any_other(analyze: Any) -> None:
    rows = (np.asarray([[5.0], [1.0], [2.0]]), np.asarray(["one", "two", "two"], object))
    unseen = (np.asarray([[9.0]]), np.asarray(["one"], object))
    assert analyze(_function(_group(), 1), [rows], unseen).tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("impute", "filling"), [({"constant": 4.0}, 4.0), ("median", 10.0), ("most_frequent", 10.0)]
)
def test_other_imputed_values_are_of_the_whole_column(
    analyze: Any, impute: Any, filling: float
) -> None:
    x = np.asarray([[1.0], [3.0], [NAN], [10.0], [10.0], [30.0]])
    keys = np.asarray(["a", "a", "a", "b", "b", "b"], object)
    found = analyze(_function(_group(impute=impute), 1), [(x, keys)], (x, keys))[:, 0]
    np.testing.assert_allclose(found[2], (filling - 2.0) / 1.0, rtol=1e-6)


def test_more_keys_than_the_cap_are_an_error_that_names_group_and_column() -> None:
    combiner = KeyedMomentsCombiner(1, 3, "group 'g': scale.z_score.by='zip'")
    accumulators = [
        combiner.add_input(combiner.create_accumulator(), [np.asarray(keys), np.zeros([2, 1])])
        for keys in ([1, 2], [3, 4])
    ]
    with pytest.raises(ValueError, match=r"group 'g': .*by='zip' has more than max_keys=3 keys: "):
        combiner.merge_accumulators(accumulators)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"columns": ["x", "key"]}, "'key' is both a column to scale and the key"),
        ({"clip": {"quantiles": [0.1, 0.9]}}, "scale: z_score needs statistics of the clipped"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _group(**fields)


def test_a_key_that_is_a_target_is_refused() -> None:
    spec = {
        "groups": [{"name": "g", "columns": "x", "scale": {"z_score": {"by": "y"}}}],
        "label": {"column": "y", "kind": "multiclass"},
    }
    with pytest.raises(ValueError, match="'y' is the label and also the key of group 'g'"):
        FeatureSpec.model_validate(spec)
