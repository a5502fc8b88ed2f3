"""Merging statistics: any split into batches, in any order, gives the statistics of the whole.

Reference: NumPy in float64 over all rows at once; tolerance 1e-6 relative to the spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

tf = pytest.importorskip("tensorflow")

from transform.analyzers.moments import _batch_moments, _MomentsCombiner  # noqa: E402

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
