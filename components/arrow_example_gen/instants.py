"""Times as keys that sort by the instant, whatever the offsets and fractions of the texts.

Numbers are their own keys. A text is ISO 8601, or a part of it from the left: 2024, 2024-05-31,
2024-05-31 12:00:00.5, 2024-05-31T12:00:00+02:00. Its key is the second in UTC, as 13 digits, and
the fraction without zeros at its end, of any length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

_TIME = (
    r"^(?P<year>\d{4})(?:-(?P<month>\d{2})(?:-(?P<day>\d{2})(?:[Tt ](?P<hour>\d{2})"
    r"(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d+))?)?)?"
    r" ?(?P<offset>[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?)?)?$"
)
_DEFAULTS = {"month": "01", "day": "01", "hour": "00", "minute": "00", "second": "00"}
_YEAR_0 = 2**40  # seconds that make each sum a positive number of 13 digits
_FIX = "Write times as 2024-05-31 12:00:00 (or a part of it, from the left), or as numbers."


class Instants(NamedTuple):
    """Keys of some rows, and the forms of their texts.

    Attributes:
        keys: `[rows]`, of a type that Arrow sorts.
        forms: Whether a text has an offset -> the first such text; empty for numbers.
    """

    keys: pa.Array
    forms: dict[bool, str]


def instants(values: pa.Array) -> Instants:
    """Return the keys of times.

    Args:
        values: Numbers or binary texts, without null.

    Raises:
        ValueError: A text is no time. The message continues "Column 'x' of ...".
    """
    if not types.is_binary(values.type) and not types.is_large_binary(values.type):
        return Instants(values, {})
    found = pc.extract_regex(values, pattern=_TIME)
    _refuse(values, found.is_null())
    parts = {field.name: found.field(i).cast(pa.string()) for i, field in enumerate(found.type)}
    for name, default in _DEFAULTS.items():
        parts[name] = pc.if_else(pc.equal(parts[name], ""), default, parts[name])
    day = pc.binary_join_element_wise(parts["year"], parts["month"], parts["day"], "-")
    clock = pc.binary_join_element_wise(parts["hour"], parts["minute"], parts["second"], ":")
    local = pc.binary_join_element_wise(day, clock, "T").to_numpy(zero_copy_only=False)
    seconds = _seconds(local)
    _refuse(values, pa.array(np.isnat(seconds)))
    offsets = parts["offset"].dictionary_encode()
    shifts = np.array([_shift(each) for each in offsets.dictionary.to_pylist()], np.int64)
    utc = seconds.astype(np.int64) - shifts[offsets.indices.to_numpy()]
    keys = pc.binary_join_element_wise(
        pa.array(utc + _YEAR_0).cast(pa.string()), pc.utf8_rtrim(parts["fraction"], "0"), "."
    )
    has_offset = pc.not_equal(parts["offset"], "")
    places = {form: pc.index(has_offset, pa.scalar(form)).as_py() for form in (True, False)}
    return Instants(
        keys, {form: values[i].as_py().decode() for form, i in places.items() if i >= 0}
    )


def check_forms(forms: dict[bool, str]) -> None:
    """Check that all texts of a column have an offset, or none.

    Raises:
        ValueError: Some have; the message continues "Column 'x' of ...".
    """
    if len(forms) > 1:
        raise ValueError(
            f"holds {forms[True]!r}, with an offset from UTC, and {forms[False]!r}, without one: "
            "which is earlier is unknown. Write all of them with an offset (+02:00, or Z for UTC), "
            "or none."
        )


def _seconds(texts: np.ndarray) -> np.ndarray:
    """Return datetime64[s] `[rows]`, NaT for a day or a time that does not exist."""
    try:
        return texts.astype("datetime64[s]")
    except ValueError:
        return np.array([_second(text) for text in texts.tolist()], "datetime64[s]")


def _second(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "s")
    except ValueError:
        return np.datetime64("NaT", "s")


def _shift(offset: str) -> int:
    """Return the seconds of `+02:00`, `+0200` or `+02`; 0 for `Z` and without an offset."""
    if offset[:1] not in ("+", "-"):
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    return int(offset[0] + "1") * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _refuse(values: pa.Array, wrong: pa.Array) -> None:
    texts = values.filter(wrong)
    if len(texts):
        first = texts[0].as_py().decode(errors="replace")
        raise ValueError(f"holds {first!r}, which is no time ({len(texts):,} such texts). {_FIX}")
