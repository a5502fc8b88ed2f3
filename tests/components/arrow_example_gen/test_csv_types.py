"""Whole numbers of CSV: up to the ends of int64, and with either decimal mark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from components.arrow_example_gen.csv_types import beyond_int64, read_numbers


def test_whole_numbers_with_the_other_mark_are_none():
    for mark, text, number in ((".", "1,000", None), (",", "1.000", None), (",", "60,0", 60)):
        numbers, wrong = read_numbers(pa.array([text]), "int", mark)
        assert (numbers.to_pylist(), wrong) == ([number], [] if number else [0])


@given(st.integers(-(2**64), 2**64), st.sampled_from(["", "+", "000"]), st.sampled_from(["", ".0"]))
def test_whole_numbers_up_to_the_ends_of_int64(number, before, behind):
    text = f"{before}{abs(number)}" if number >= 0 else str(number)
    held = -(2**63) <= number < 2**63
    found, faulty = read_numbers(pa.array([text + behind]), "int", ".")
    assert (found.to_pylist(), faulty) == ([number if held else None], [] if held else [0])
    assert beyond_int64(pa.array([text, None])).to_pylist() == [not held, False]
