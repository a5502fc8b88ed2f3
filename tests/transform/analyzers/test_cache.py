"""Analyzer caches: the accumulators come back as they were, and no foreign code runs."""

from __future__ import annotations

import os
import pickle
import zlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform.analyzers.counts import _MostFrequentCombiner
from transform.analyzers.quantiles import _QuantilesCombiner

RNG = np.random.default_rng(5)
X = np.where(RNG.random([200, 3]) < 0.1, np.nan, RNG.normal(1e9, 1.0, [200, 3]))
X[:, 2] = np.nan
TEXTS = np.asarray([[b"", b"a\x00", bytes([255, 10])][i] for i in RNG.integers(0, 3, 200)], object)
COMBINERS: dict[str, tuple[Any, list[np.ndarray]]] = {
    "quantiles": (_QuantilesCombiner(3, 4), [X]),
    "numbers": (_MostFrequentCombiner(3, is_text=False), [np.round(X)]),
    "texts": (_MostFrequentCombiner(1, is_text=True), [TEXTS[:, np.newaxis]]),
}


def test_an_accumulator_comes_back_bit_for_bit() -> None:
    for name in COMBINERS:
        combiner, batch = COMBINERS[name]
        accumulator = combiner.add_input(combiner.create_accumulator(), batch)
        coder = combiner.accumulator_coder
        again = coder.decode_cache(coder.encode_cache(accumulator))
        assert coder.encode_cache(again) == coder.encode_cache(accumulator)
        empty = coder.decode_cache(coder.encode_cache(combiner.create_accumulator()))
        merged = combiner.extract_output(combiner.merge_accumulators([again, empty]))
        for found, expected in zip(merged, combiner.extract_output(accumulator), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


class _Foreign:
    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_a_pickle_in_its_place_is_refused_and_not_run(tmp_path: Any) -> None:
    for name in COMBINERS:
        encoded = pickle.dumps(_Foreign(str(tmp_path / "run")))
        coder = COMBINERS[name][0].accumulator_coder
        for attack in (encoded, zlib.compress(encoded)):
            with pytest.raises((ValueError, zlib.error)):
                coder.decode_cache(attack)
        assert not (tmp_path / "run").exists()
