"""Bools as texts: `True`, `true` and `TRUE`, as Python, JSON and R write them.

They are the ints 1 and 0, as a bool column of Parquet is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_TRUE = r"^[ \t\r\n\v\f]*(True|true|TRUE)[ \t\r\n\v\f]*$"
_FALSE = r"^[ \t\r\n\v\f]*(False|false|FALSE)[ \t\r\n\v\f]*$"


def are_bools(cells: pa.Array) -> pa.Array:
    """Return which texts are bools, spaces around them or not; null for null."""
    return pc.or_(pc.match_substring_regex(cells, _TRUE), pc.match_substring_regex(cells, _FALSE))


def bools_as_digits(cells: pa.Array) -> pa.Array:
    """Return the texts with `1` and `0` in place of bools."""
    if not pc.any(are_bools(cells)).as_py():
        return cells
    return pc.replace_substring_regex(pc.replace_substring_regex(cells, _TRUE, "1"), _FALSE, "0")
