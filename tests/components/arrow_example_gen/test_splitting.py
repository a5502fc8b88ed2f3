"""Where a split ends among the sorted values of few rows and of many."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from components.arrow_example_gen.splitting import (
    Splitting,
    _Cuts,
    _HashCuts,
    cuts_of,
    hash_cuts,
    hash_of,
)


@pytest.mark.parametrize(
    ("rows", "shares", "sizes"),
    [
        (1, (80, 20), [1, 0]),
        (2, (67, 33), [1, 1]),
        (3, (67, 23, 10), [2, 1, 0]),
        (10, (50, 25, 25), [5, 3, 2]),
        (2, (10, 90), [1, 1]),
    ],
)
def test_each_split_has_its_share_and_the_first_has_a_row(rows, shares, sizes):
    cuts = cuts_of(list(range(rows)), shares)
    splits = np.searchsorted(cuts, np.arange(rows), side="left")
    assert np.bincount(splits, minlength=len(shares)).tolist() == sizes


@pytest.mark.parametrize("rows", [7, 10_000, 60_000])
@pytest.mark.parametrize("parts", [1, 4])
def test_cuts_of_parts_are_those_of_all_rows(rows: int, parts: int) -> None:
    """Reference: sorted by NumPy; exact up to 10,000 rows, else within 0.2 % of the rows."""
    values = np.random.default_rng(8).permutation(rows)
    function = _Cuts((70, 20, 10))
    accumulators = []
    for part in np.array_split(values, parts):
        accumulator = function.create_accumulator()
        for value in part.tolist():
            accumulator = function.add_input(accumulator, value)
        accumulators.append(pickle.loads(pickle.dumps(accumulator)))  # as they reach other workers
    found = function.extract_output(function.merge_accumulators(accumulators))
    expected = cuts_of(sorted(values.tolist()), (70, 20, 10))
    allowed = 0 if rows <= 10_000 else 0.002 * rows
    assert np.abs(np.subtract(found, expected)).max() <= allowed


@pytest.mark.parametrize("rows", [1, 2, 25, 10_000, 10_001, 30_000])
@pytest.mark.parametrize("parts", [1, 3])
def test_few_rows_are_split_by_exact_shares_of_their_hashes(rows: int, parts: int) -> None:
    """Reference: the sorted hashes, up to 10,000; of more, cuts that no row decides on."""
    hashes = [hash_of(i, b"a row") for i in range(rows)]
    function = _HashCuts((70, 20, 10))
    accumulators = []
    for part in np.array_split(hashes, parts):
        accumulator = function.create_accumulator()
        for value in part.tolist():
            accumulator = function.add_input(accumulator, value)
        accumulators.append(pickle.loads(pickle.dumps(accumulator)))
    found = function.extract_output(function.merge_accumulators(accumulators))
    exact = rows <= 10_000
    assert found == (cuts_of(sorted(hashes), (70, 20, 10)) if exact else hash_cuts((70, 20, 10)))
    train = np.mean(np.asarray(hashes) <= found[0])
    np.testing.assert_allclose(train, 0.7, atol=0.5 / rows if 2 < rows <= 10_000 else 0.31)


def test_cuts_of_hashes_are_the_first_whole_number_below_the_share() -> None:
    (cut,) = hash_cuts((2, 1))
    assert cut * 3 < 2 * 2**53 <= (cut + 1) * 3


def test_hashes_are_even_and_of_the_place_too() -> None:
    hashes = [hash_of(i, b"the same row") for i in range(5_000)]
    counts = np.bincount(np.searchsorted(hash_cuts((60, 30, 10)), hashes, side="left"))
    np.testing.assert_allclose(counts / 5_000, [0.6, 0.3, 0.1], atol=0.03)
    assert len(set(hashes)) == 5_000


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="do not go together"):
        Splitting(by="row", column="x")
    with pytest.raises(ValueError, match="do not go together"):
        Splitting(by="time")
