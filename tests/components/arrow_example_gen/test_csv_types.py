"""Numbers that CSV writes for people: what each form takes, as which number, and what it refuses.

Reference: Python's own formatting of decimals, read back exactly.
"""

from __future__ import annotations

import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from components.arrow_example_gen.csv_options import NumberFormat
from components.arrow_example_gen.csv_types import (
    NumberTexts,
    _plain_numbers,
    beyond_int64,
    has_format,
)

DOLLARS = NumberFormat(unit="$", thousands=",")
EUROS = NumberFormat(unit="\u20ac", thousands=".", decimal=",")
PERCENT = NumberFormat(unit="%")
GROUPS = NumberFormat(thousands=",")
SPACES = NumberFormat(thousands=" ", decimal=",")
SWISS = NumberFormat(unit="CHF", thousands="'")


FORMS = [
    (DOLLARS, "$1,234.50", "1234.50"),
    (DOLLARS, "-$5", "-5"),
    (DOLLARS, "\u2212$5", "-5"),
    (DOLLARS, "($1,234.50)", "-1234.50"),
    (DOLLARS, "$\u00a01,234", "1234"),
    (EUROS, "1.234,50 \u20ac", "1234.50"),
    (PERCENT, "23.4%", "23.4"),
    (GROUPS, "1,234", "1234"),
    (GROUPS, "( 1,234 )", "-1234"),
    (SPACES, "1\u00a0234\u00a0567", "1234567"),
    (SWISS, "CHF 1'234.50", "1234.50"),
]
OTHERS = [
    (DOLLARS, "1,23,4"),
    (DOLLARS, "0,123"),
    (DOLLARS, "$5$"),
    (DOLLARS, "\u20ac5"),
    (DOLLARS, "(-5)"),
    (DOLLARS, "5)"),
    (DOLLARS, "\u0661\u0662"),  # Arabic digits
    (EUROS, "1.5"),  # a plain number, but not in this form: 1.5 or a slip
    (PERCENT, "5"),
    (GROUPS, "nan"),
    (SPACES, "1 23"),
]


def test_forms():
    for form, text, number in FORMS:
        cells = pa.array([text, None, f" {text} "])
        assert has_format(cells, form).to_pylist() == [True, None, True], text
        assert _plain_numbers(cells, form).to_pylist() == [number, None, number], text


def test_what_has_another_form_is_no_number():
    for form, text in OTHERS:
        assert has_format(pa.array([text]), form).to_pylist() == [False], text
        cells = pa.array(["7%", "7", text])
        numbers, wrong = NumberTexts(formats={"a": form}).numbers("a", cells, "float")
        assert 2 in wrong
        assert numbers[2].as_py() is None


def test_whole_numbers_with_the_other_mark_are_none():
    for mark, text, number in ((".", "1,000", None), (",", "1.000", None), (",", "60,0", 60)):
        numbers, wrong = NumberTexts(mark).numbers("a", pa.array([text]), "int")
        assert (numbers.to_pylist(), wrong) == ([number], [] if number else [0])


@given(st.integers(-(2**64), 2**64), st.sampled_from(["", "+", "000"]), st.sampled_from(["", ".0"]))
def test_whole_numbers_up_to_the_ends_of_int64(number, before, behind):
    text = f"{before}{abs(number)}" if number >= 0 else str(number)
    held = -(2**63) <= number < 2**63
    found, faulty = NumberTexts().numbers("a", pa.array([text + behind]), "int")
    assert (found.to_pylist(), faulty) == ([number if held else None], [] if held else [0])
    assert beyond_int64(pa.array([text, None])).to_pylist() == [not held, False]


AMOUNTS = st.decimals(-(10**12), 10**12, places=2, allow_nan=False, allow_infinity=False)


@given(AMOUNTS, st.sampled_from(["", "$", "\u20ac", "USD"]), st.booleans(), st.booleans())
def test_formatted_decimals_are_read_exactly(amount, unit, behind, parentheses):
    """To the nearest float64, as Python reads the decimal; `.` and `,` in either role."""
    text = f"{abs(amount):,.2f}"
    text = f"{text} {unit}" if behind else f"{unit}{text}"
    if amount < 0:
        text = f"({text})" if parentheses else f"-{text}"
    swapped = text.translate(str.maketrans(",.", ".,"))
    english = NumberFormat(unit=unit, thousands=",")
    german = NumberFormat(unit=unit, thousands=".", decimal=",")
    texts = NumberTexts(formats={"a": english, "b": german})
    for name, cell in (("a", text), ("b", swapped)):
        found, faulty = texts.numbers(name, pa.array([cell]), "float")
        assert faulty == []
        assert found.to_pylist() == [float(amount)]


@given(st.text("0123456789.,-+() $%\u20ac", max_size=10))
def test_no_text_becomes_another_number(text):
    """What has the form of a number is that number without its signs and separators."""
    for form in (DOLLARS, GROUPS):
        if has_format(pa.array([text]), form)[0].as_py():
            bare = text.translate(str.maketrans("", "", "$,() +-"))
            sign = -1 if set(text) & set("-(") else 1
            (plain,) = _plain_numbers(pa.array([text]), form).to_pylist()
            assert decimal.Decimal(plain) == sign * decimal.Decimal(bare)
            head = bare.partition(".")[0]
            if "," in text:
                assert f"{int(head):,}" in text
