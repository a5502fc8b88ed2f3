"""Hashes of rows: of the values of each column alone, however the rows are stored."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from components.arrow_example_gen.row_hash import row_hashes, with_places

MASK = 2**64 - 1
TYPES = {"n": pa.int64(), "x": pa.float32(), "t": pa.large_binary()}


def batch(rows, names="nxt"):
    columns = [
        pa.array([row.get(name) or [] for row in rows], pa.large_list(TYPES[name]))
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, list(names))


def mix(word):
    """splitmix64, by Python's integers."""
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def text_hash(value):
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")


def word(value):
    if isinstance(value, int):
        return value & MASK
    if isinstance(value, float):
        return (
            0x7FC00000 if value != value else struct.unpack("<I", struct.pack("<f", value + 0))[0]
        )
    return text_hash(value)


def reference(row):
    total = 0
    for name, values in row.items():
        for place, value in enumerate(values):
            key = mix((mix(text_hash(name.encode())) + place) & MASK)
            total += mix(word(value) ^ key)
    return total & MASK


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
            "x": st.lists(st.floats(width=32), max_size=3),
            "t": st.lists(st.binary(max_size=4), max_size=3),
        }
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(ROWS, st.integers(0, 6), st.permutations("nxt"))
def test_a_hash_is_that_of_the_rows_values(rows, start, names):
    """Reference: the definition, value by value; for slices and any order of columns too."""
    found = row_hashes(batch(rows, names).slice(start))
    assert found.tolist() == [reference(row) for row in rows[start:]]


def test_equal_values_and_missing_ones():
    rows = [{"x": [0.0]}, {"x": [-0.0]}, {"x": [float("nan")]}, {"x": [-float("nan")]}, {"x": []}]
    zero, minus_zero, nan, minus_nan, missing = row_hashes(batch(rows))
    assert zero == minus_zero
    assert nan == minus_nan
    assert len({zero, nan, missing}) == 3
    assert row_hashes(batch([{"t": []}, {"t": [b""]}])).tolist()[0] == 0
    with_empty = [*batch(rows).columns, pa.nulls(5, pa.large_list(pa.large_binary()))]
    with_empty = pa.RecordBatch.from_arrays(with_empty, ["n", "x", "t", "empty"])
    assert (row_hashes(with_empty) == row_hashes(batch(rows))).all()


def test_the_columns_name_and_the_place_in_a_list_count():
    rows = batch([{"n": [1, 2], "t": [b"a"]}, {"n": [2, 1], "t": [b"a"]}])
    other = pa.RecordBatch.from_arrays(rows.columns, ["m", "x", "t"])
    assert len({*row_hashes(rows).tolist(), *row_hashes(other).tolist()}) == 4
    assert row_hashes(rows, ["t"]).tolist() == [reference({"t": [b"a"]})] * 2


def test_hashes_are_even_and_of_the_place_too():
    """60,000 rows of one number: each bit of the hashes is set in half of them."""
    rows = pa.RecordBatch.from_arrays([pa.array([[7]] * 60_000, pa.large_list(pa.int64()))], ["n"])
    hashes = with_places(row_hashes(rows), np.arange(60_000))
    assert len(set(hashes.tolist())) == 60_000
    bits = np.unpackbits(hashes.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    np.testing.assert_allclose(bits, 0.5, atol=0.015)
