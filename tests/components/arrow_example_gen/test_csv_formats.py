"""Numbers that CSV writes for people: what each form takes, as which number, and what it refuses.

Reference: Python's own formatting of decimals, read back exactly.
"""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("pyarrow")

import pyarrow as pa

from components import CsvOptions
from components.arrow_example_gen.csv_numbers import (
    NumberTexts,
    beyond_int64,
    has_format,
    plain_numbers,
)
from components.arrow_example_gen.csv_options import NumberFormat
from components.arrow_example_gen.csv_table import open_table

DOLLARS = NumberFormat(unit="$", thousands=",")
EUROS = NumberFormat(unit="\u20ac", thousands=".", decimal=",")
PERCENT = NumberFormat(unit="%")
GROUPS = NumberFormat(thousands=",")
SPACES = NumberFormat(thousands=" ", decimal=",")
SWISS = NumberFormat(unit="CHF", thousands="'")
RUPEES = NumberFormat(unit="Rs.", thousands=",")


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        (DOLLARS, "$1,234.50", "1234.50"),
        (DOLLARS, "$ 1,234.50", "1234.50"),
        (DOLLARS, "1,234.50$", "1234.50"),
        (DOLLARS, "1,234.50 $", "1234.50"),
        (DOLLARS, "-$5", "-5"),
        (DOLLARS, "$-5", "-5"),
        (DOLLARS, "- $ 5", "-5"),
        (DOLLARS, "-5 $", "-5"),
        (DOLLARS, "\u2212$5", "-5"),
        (DOLLARS, "+$5", "5"),
        (DOLLARS, "($1,234.50)", "-1234.50"),
        (DOLLARS, "$(12)", "-12"),
        (DOLLARS, "(12)$", "-12"),
        (DOLLARS, "(12 $)", "-12"),
        (DOLLARS, "1,234,567", "1234567"),
        (DOLLARS, "1234567.5", "1234567.5"),
        (DOLLARS, "$.5", ".5"),
        (DOLLARS, "$\u00a01,234", "1234"),
        (EUROS, "1.234,50 \u20ac", "1234.50"),
        (EUROS, "\u20ac1.234.567", "1234567"),
        (EUROS, "1234,5", "1234.5"),
        (EUROS, "0,123 \u20ac", "0.123"),
        (PERCENT, "23.4%", "23.4"),
        (PERCENT, "23.4 %", "23.4"),
        (PERCENT, "-5%", "-5"),
        (PERCENT, "(5%)", "-5"),
        (PERCENT, "(5)%", "-5"),
        (GROUPS, "1,234", "1234"),
        (GROUPS, "(12)", "-12"),
        (GROUPS, "( 1,234 )", "-1234"),
        (GROUPS, "12,345,678.9", "12345678.9"),
        (SPACES, "1 234,5", "1234.5"),
        (SPACES, "1\u00a0234\u00a0567", "1234567"),
        (SPACES, "1\u202f234", "1234"),
        (SWISS, "CHF 1'234.50", "1234.50"),
        (SWISS, "1\u2019234 CHF", "1234"),
        (RUPEES, "Rs. 1,234.50", "1234.50"),
    ],
)
def test_forms(form, text, number):
    cells = pa.array([text, None, f" {text} "])
    assert has_format(cells, form).to_pylist() == [True, None, True]
    assert plain_numbers(cells, form).to_pylist() == [number, None, number]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (DOLLARS, "1,23,4"),
        (DOLLARS, "$1,23"),
        (DOLLARS, "1234,567"),
        (DOLLARS, "0,123"),
        (DOLLARS, "1,234.5.6"),
        (DOLLARS, "1.234,50"),
        (DOLLARS, "$5$"),
        (DOLLARS, "\u20ac5"),
        (DOLLARS, "5%"),
        (DOLLARS, "--5"),
        (DOLLARS, "-($5)"),
        (DOLLARS, "(-5)"),
        (DOLLARS, "(5"),
        (DOLLARS, "5)"),
        (DOLLARS, "$"),
        (DOLLARS, "()"),
        (DOLLARS, ","),
        (DOLLARS, "1,234 567"),
        (DOLLARS, "5 to 6"),
        (DOLLARS, "\u0661\u0662"),  # Arabic digits
        (EUROS, "1.5"),  # a plain number, but not in this form: 1.5 or a slip
        (EUROS, "1,234.50"),
        (EUROS, "1.2345"),
        (PERCENT, "5"),
        (PERCENT, "0.05"),
        (PERCENT, "%5"),
        (GROUPS, "1,2,3"),
        (GROUPS, "1.2.3"),
        (GROUPS, "$5"),
        (GROUPS, "1 234"),
        (GROUPS, "nan"),
        (SPACES, "1 23"),
        (SPACES, "555 123 4567"),
        (SPACES, "030 123 456"),
    ],
)
def test_what_has_another_form_is_no_number(form, text):
    assert has_format(pa.array([text]), form).to_pylist() == [False]
    found, faulty = NumberTexts(formats={"a": form}).numbers(
        "a", pa.array(["7%", "7", text]), "float"
    )
    assert 2 in faulty
    assert found[2].as_py() is None


@pytest.mark.parametrize(
    ("mark", "text", "number"),
    [(".", "1,000", None), (",", "1.000", None), (".", "60.0", 60), (",", "60,0", 60)],
)
def test_whole_numbers_with_the_other_mark_are_none(mark, text, number):
    found, faulty = NumberTexts(mark).numbers("a", pa.array([text]), "int")
    assert (found.to_pylist(), faulty) == ([number], [] if number else [0])


@given(st.integers(-(2**64), 2**64), st.sampled_from(["", "+", "000"]), st.sampled_from(["", ".0"]))
def test_whole_numbers_up_to_the_ends_of_int64(number, before, behind):
    text = f"{before}{abs(number)}" if number >= 0 else str(number)
    held = -(2**63) <= number < 2**63
    found, faulty = NumberTexts().numbers("a", pa.array([text + behind]), "int")
    assert (found.to_pylist(), faulty) == ([number if held else None], [] if held else [0])
    assert beyond_int64(pa.array([text, None])).to_pylist() == [not held, False]


def test_the_ends_of_int64_are_within_it():
    texts = pa.array([str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), None])
    assert beyond_int64(texts).to_pylist() == [False, True, False, True, False]


def test_line_breaks_around_formatted_numbers():
    found, faulty = NumberTexts(formats={"a": DOLLARS}).numbers("a", pa.array(["\n$5 \r\n"]), "int")
    assert (found.to_pylist(), faulty) == ([5], [])


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
            (plain,) = plain_numbers(pa.array([text]), form).to_pylist()
            assert decimal.Decimal(plain) == sign * decimal.Decimal(bare)
            head = bare.partition(".")[0]
            if "," in text:
                assert f"{int(head):,}" in text


def read(file: Path, options: CsvOptions) -> tuple[Any, list[Any]]:
    table = open_table([str(file)], options)
    blocks = list(table.all_blocks())
    types = table.types(table.together(map(table.count, blocks)))
    cells = [table.typed(block, "a", types).to_pylist() for block in blocks]
    return types.kinds["a"], [cell for block in cells for cell in block]


@pytest.mark.parametrize(
    ("cells", "form", "kind", "values"),
    [
        (["$1,234.50", "($7)", ""], DOLLARS, "float", [1234.5, -7.0, None]),
        (["$1,234", "$-7"], DOLLARS, "int", [1234, -7]),
        (["1.234,50 \u20ac", "3"], EUROS, "float", [1234.5, 3.0]),
        (["1.234", "5"], EUROS, "int", [1234, 5]),
        (["23.4%", "NA"], PERCENT, "float", [23.4, None]),
        (["9,223,372,036,854,775,807"], GROUPS, "int", [2**63 - 1]),
    ],
)
def test_columns(tmp_path, cells, form, kind, values):
    lines = "".join(f'{i};"{cell}";2.5\n' for i, cell in enumerate(cells))
    (tmp_path / "rows.csv").write_text("row;a;b\n" + lines, encoding="utf-8")
    assert read(tmp_path / "rows.csv", CsvOptions(formatted={"a": form})) == (kind, values)


def test_the_decimal_mark_of_other_columns_is_not_touched(tmp_path):
    (tmp_path / "rows.csv").write_text("a;b\n$1,234.50;3,5\n$2;4\n")
    table = open_table([str(tmp_path / "rows.csv")], CsvOptions(formatted={"a": DOLLARS}))
    (block,) = table.all_blocks()
    types = table.types(table.count(block))
    assert table.typed(block, "a", types).to_pylist() == [1234.5, 2.0]
    assert table.typed(block, "b", types).to_pylist() == [3.5, 4.0]


@pytest.mark.parametrize("wrong", ["1,23,4", "\u20ac5", "many", "1e5"])
def test_another_form_is_an_error_with_its_line(tmp_path, wrong):
    lines = ["row;a", *(f"{i};$1,234" for i in range(5)), f"5;{wrong}", "6;$7"]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"rows\.csv, line 7: column 'a': .* is not a number like \$1"
    ):
        read(tmp_path / "rows.csv", CsvOptions(formatted={"a": DOLLARS}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formatted": {"a": {"thousands": "."}}}, "set decimal: ','"),
        ({"formatted": {"a": {"thousands": ",", "decimal": ","}}}, "set decimal: '.'"),
        ({"formatted": {"a": {"unit": "5"}}}, "is not a unit"),
        ({"formatted": {"a": {"unit": "-"}}}, "is not a unit"),
        ({"formatted": {"a": {"unit": "."}}}, "is not a unit"),
        ({"formatted": {"a": {"thousands": "_"}}}, "thousands"),
        ({"formatted": {"a": {}}, "text": ["a"]}, "text and formatted both name 'a'"),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(ValidationError, match=message):
        CsvOptions.model_validate(options)


def test_words_without_a_value_in_one_column(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\nunknown,unknown\n5,NA\n <5 ,x\n")
    table = open_table(
        [str(tmp_path / "rows.csv")], CsvOptions(missing_in={"a": ("unknown", "<5")})
    )
    (block,) = table.blocks(table.files[0])
    assert block.to_pydict() == {"a": [None, "5", None], "b": ["unknown", None, "x"]}
