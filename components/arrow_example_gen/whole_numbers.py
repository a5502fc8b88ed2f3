"""Texts of whole numbers that int64 does not hold, found without converting them.

Python converts 4,300 digits at most, and Arrow none beyond int64.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGEST, _SMALLEST = str(2**63 - 1), str(2**63)  # digits of the smallest, without its sign


def beyond_int64(texts: pa.Array) -> pa.Array:
    """Return which texts are whole numbers that int64 does not hold; of null, false."""
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
