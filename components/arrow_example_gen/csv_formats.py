"""Converts numbers that are written for people (`$1,234.50`) by their `NumberFormat`."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.number_format import NumberFormat

_SPACES = "[ \t\u00a0\u2009\u202f]"
_SIGN = "[+\\-\u2212]"
_BETWEEN = {",": ",", ".": r"\.", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}


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
