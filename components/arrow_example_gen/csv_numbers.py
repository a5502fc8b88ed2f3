"""Texts as numbers: plain, as bools, or written for people (`$1,234.50`, see `NumberFormat`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.csv_options import NumberFormat

_LARGEST, _SMALLEST = str(2**63 - 1), str(2**63)  # digits of the smallest, without its sign
_SPECIAL = r"^[+-]?(?i:inf|infinity|nan)$"
_NUMBER = {
    mark: rf"^[+-]?([0-9]+[{mark}]?[0-9]*|[{mark}][0-9]+)([eE][+-]?[0-9]+)?$" for mark in ".,"
}
# As Python, JSON and R write them. They are the ints 1 and 0, as a bool column of Parquet is.
_TRUE = r"^[ \t\r\n\v\f]*(True|true|TRUE)[ \t\r\n\v\f]*$"
_FALSE = r"^[ \t\r\n\v\f]*(False|false|FALSE)[ \t\r\n\v\f]*$"

_SPACES = "[ \t\u00a0\u2009\u202f]"
_SIGN = "[+\\-\u2212]"
_BETWEEN = {",": ",", ".": r"\.", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}


def trimmed(cells: pa.Array) -> pa.Array:
    """Return cells without spaces around them and a plus sign in front."""
    return pc.replace_substring_regex(
        pc.ascii_trim_whitespace(cells),
        "^\\+([^+\\-\u2212])",
        r"\1",  # not +-1
    )


def are_numbers(cells: pa.Array, decimal: str) -> pa.Array:
    """Return whether each cell is a plain number; null where it has no value."""
    return are_plain_numbers(trimmed(cells), decimal)


def are_plain_numbers(plain: pa.Array, decimal: str) -> pa.Array:
    """Return the same of cells that are `trimmed`."""
    number = pc.match_substring_regex(plain, _NUMBER[decimal])
    return pc.or_(number, pc.match_substring_regex(plain, _SPECIAL))


def are_bools(cells: pa.Array) -> pa.Array:
    """Return which texts are bools, spaces around them or not; null for null."""
    return pc.or_(pc.match_substring_regex(cells, _TRUE), pc.match_substring_regex(cells, _FALSE))


def bools_as_digits(cells: pa.Array) -> pa.Array:
    """Return the texts with `1` and `0` in place of bools."""
    if not pc.any(are_bools(cells)).as_py():
        return cells
    return pc.replace_substring_regex(pc.replace_substring_regex(cells, _TRUE, "1"), _FALSE, "0")


def beyond_int64(texts: pa.Array) -> pa.Array:
    """Return which texts are whole numbers that int64 does not hold; of null, false.

    They are not converted: Python takes 4,300 digits at most, and Arrow none beyond int64.
    """
    if (pc.max(pc.binary_length(texts)).as_py() or 0) < len(_LARGEST):  # as nearly always
        return pa.array(np.zeros(len(texts), bool))
    texts = pc.fill_null(texts, "")
    digits = pc.replace_substring_regex(texts, r"^[+-]?0*", "")
    is_whole = pc.match_substring_regex(digits, r"^[0-9]+$")
    length = pc.binary_length(digits)
    end = pc.if_else(pc.starts_with(texts, "-"), _SMALLEST, _LARGEST)
    is_long = pc.greater(length, len(_LARGEST))
    # Digits of one length are in the order of their texts.
    is_above = pc.and_(pc.equal(length, len(_LARGEST)), pc.greater(digits, end))
    return pc.and_(is_whole, pc.or_(is_long, is_above))


def has_format(cells: pa.Array, form: NumberFormat) -> pa.Array:
    """Return whether each cell is a number in this format; null where it has no value."""
    return pc.match_substring_regex(cells, _pattern(form.unit, form.thousands, form.decimal))


def plain_numbers(cells: pa.Array, form: NumberFormat) -> pa.Array:
    """Return the cells, each a number in this format or null, as `-1234.5`."""
    negative = pc.match_substring_regex(cells, "[\\-\u2212(]")
    if form.unit:
        cells = pc.replace_substring(cells, form.unit, "")
    digits = pc.replace_substring_regex(cells, f"[^0-9{form.decimal}]", "")
    if form.decimal == ",":
        digits = pc.replace_substring(digits, ",", ".")
    return pc.if_else(negative, pc.binary_join_element_wise("-", digits, ""), digits)


def converted(cells: pa.Array, kind: Kind, decimal: str, form: NumberFormat | None) -> pa.Array:
    """Return texts of which each is such a number, or null, as int64 or float64."""
    plain = trimmed(cells)
    if form is not None:
        plain, decimal = plain_numbers(plain, form), "."
    if kind == "int":
        plain = bools_as_digits(plain)
        return pc.replace_substring_regex(plain, r"[.,]0*$", "").cast(pa.int64())
    if decimal == ",":
        plain = pc.replace_substring(plain, ",", ".")
    return plain.cast(pa.float64())


@dataclass(frozen=True)
class NumberTexts:
    """How texts write numbers.

    Attributes:
        decimal: mark before decimals.
        formats: column -> how it writes numbers for people; includes its decimal mark.
    """

    decimal: str = "."
    formats: Mapping[str, NumberFormat] = field(default_factory=dict)

    def numbers(self, name: str, cells: pa.Array, kind: Kind) -> tuple[pa.Array, list[int]]:
        """Return a column as numbers, null where a text is none, and the rows of such texts."""
        cells, decimal = pc.ascii_trim_whitespace(cells), self.decimal
        wrong = pa.array(np.zeros(len(cells), bool))
        if name in self.formats:
            form, decimal = self.formats[name], "."
            wrong = pc.invert(pc.fill_null(has_format(cells, form), True))
            cells = plain_numbers(_without(cells, wrong), form)
        if kind == "int":
            # 1,000 is not 1 where the mark is a point.
            whole = pc.match_substring_regex(cells, rf"^[+-]?[0-9]+([{decimal}]0*)?$")
            digits = pc.replace_substring_regex(cells, rf"[{decimal}]0*$", "")
            fits = pc.and_not(pc.fill_null(whole, True), beyond_int64(digits))
        else:
            fits = pc.fill_null(are_numbers(cells, decimal), True)
        wrong = pc.or_(wrong, pc.invert(fits))
        places = wrong.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        return converted(_without(cells, wrong), kind, decimal, None), places


def _without(cells: pa.Array, wrong: pa.Array) -> pa.Array:
    return pc.replace_with_mask(cells, wrong, pa.scalar(None, pa.string()))


@lru_cache(maxsize=1000)
def _pattern(unit: str, thousands: str, decimal: str) -> str:
    """Return a regular expression (RE2) of a whole cell with a number in this format."""
    s, sign, point = f"{_SPACES}*", f"{_SIGN}?", re.escape(decimal)
    digits = "[0-9]+"
    if thousands:  # 0,123 is not a number in groups: a comma there would be a decimal one
        digits += f"|[1-9][0-9]{{0,2}}(?:{_BETWEEN[thousands]}[0-9]{{3}})+"
    number = f"(?:(?:{digits})(?:{point}[0-9]*)?|{point}[0-9]+)"
    plain = [f"{sign}{s}{number}", rf"\({s}{number}{s}\)"]
    if not unit:
        return f"^{s}(?:{'|'.join(plain)}){s}$"
    u = re.escape(unit)
    ways = [
        f"{sign}{s}{number}{s}{u}",
        rf"\({s}{number}{s}{u}{s}\)",
        rf"\({s}{number}{s}\){s}{u}",
    ]
    if unit != "%":  # of shares, 5 may be 5 % or 500 %
        ways += [
            *plain,
            f"{sign}{s}{u}{s}{number}",
            f"{u}{s}{_SIGN}{s}{number}",
            rf"\({s}{u}{s}{number}{s}\)",
            rf"{u}{s}\({s}{number}{s}\)",
        ]
    return f"^{s}(?:{'|'.join(ways)}){s}$"
