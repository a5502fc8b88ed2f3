"""Quantiles of many columns in one analyzer, against NumPy's; tolerance: 1 % of the ranks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform.analyzers.quantiles import QuantilesCombiner

NAN = float("nan")


def test_quantiles_of_columns_without_values_do_not_shift_the_others() -> None:
    """Accumulators pass a cache."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=[2000, 4]) * [1.0, 10.0, 100.0, 1000.0]
    x[:, 1] = NAN
    x[rng.random(2000) < 0.5, 2] = NAN
    combiner = QuantilesCombiner(4, 5)
    coder = combiner.accumulator_coder
    accumulators = [
        coder.decode_cache(
            coder.encode_cache(combiner.add_input(combiner.create_accumulator(), [part]))
        )
        for part in np.array_split(x, 7)
    ]
    (found,) = combiner.extract_output(
        combiner.compact(
            combiner.merge_accumulators([*accumulators, combiner.create_accumulator()])
        )
    )
    assert found.shape == (4, 4)
    assert not found[1].any()
    for column in (0, 2, 3):
        present = np.sort(x[~np.isnan(x[:, column]), column])
        ranks = np.searchsorted(present, found[column]) / len(present)
        np.testing.assert_allclose(ranks, [0.2, 0.4, 0.6, 0.8], atol=0.01)
