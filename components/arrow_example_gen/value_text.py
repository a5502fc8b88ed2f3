"""Values as the text that a column of texts gets: the same for every width, unit and file format.

    Arrow                  text
    bool                   True, False, as Python and pandas write them to CSV
    integer, duration      decimal digits
    float                  1.0, 0.1, 1e+20: the shortest text that is this value; NaN is missing
    decimal                all digits of its scale: 1.50
    date                   2013-05-06
    time                   17:30:00, with a fraction of 3, 6 or 9 digits if it has one
    timestamp              2013-05-06 17:30:00, the same, and Z or +05:30 if it has a time zone

Arrow's own texts differ by unit (`17:30:00` and `17:30:00.000000`) and know no zone `+05:30`.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
_UTC = {"utc", "z", "gmt", "etc/utc", "etc/gmt", "zulu", "universal", "uct"}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_text(column: pa.DataType) -> bool:
    """Return whether a type holds texts or bytes."""
    return (
        types.is_string(column)
        or types.is_large_string(column)
        or types.is_binary(column)
        or types.is_large_binary(column)
        or types.is_fixed_size_binary(column)
    )


def as_text(values: pa.Array) -> pa.Array:
    """Return the values as texts, null for null and NaN; texts and bytes as they are.

    Raises:
        pa.ArrowException: Values of this type have no text.
    """
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if is_text(kind) or types.is_null(kind):
        return values
    if types.is_boolean(kind):
        return _texts(["True" if value else "False" for value in values.to_pylist()], values)
    if types.is_floating(kind):
        numbers = values.drop_null().to_numpy(zero_copy_only=False)
        found = iter([None if number != number else str(number) for number in numbers])
        return pa.array([next(found) if valid else None for valid in _valid(values)], pa.string())
    if types.is_decimal(kind):
        return _texts(
            ["" if value is None else f"{value:f}" for value in values.to_pylist()], values
        )
    if types.is_date64(kind):
        values = values.cast(pa.date32())
    if types.is_duration(kind):
        values = values.cast(pa.int64())
    if types.is_timestamp(kind):
        return _timestamp(values)
    if types.is_time(kind):
        return _short_fraction(values.cast(pa.string()))
    return values.cast(pa.string())


def check_time_zone(kind: pa.DataType) -> None:
    """Check that a timestamp's zone is known.

    Raises:
        ValueError: It is not; the message names it.
    """
    if not types.is_timestamp(kind) or kind.tz is None:
        return
    try:
        _timestamp(pa.array([0], kind))
    except pa.ArrowException:
        raise ValueError(
            f"{kind}: no time zone {kind.tz!r} is known on this machine. Write the column in UTC, "
            "with an offset such as +05:30, or with a name such as Europe/Oslo"
        ) from None


def _texts(texts: list[str], values: pa.Array) -> pa.Array:
    return pa.array(texts, pa.string(), mask=~_valid(values))


def _valid(values: pa.Array) -> np.ndarray:
    return values.is_valid().to_numpy(zero_copy_only=False)


def _timestamp(values: pa.Array) -> pa.Array:
    kind = values.type
    naive, zone = pa.timestamp(kind.unit), kind.tz
    if zone is None:
        return _short_fraction(values.cast(pa.string()))
    offset = _OFFSET.fullmatch(zone)
    if zone.lower() in _UTC or (offset and offset[2] + offset[3] == "0000"):
        suffix, seconds = "Z", 0
    elif offset:
        suffix = f"{offset[1]}{offset[2]}:{offset[3]}"
        seconds = int(f"{offset[1]}1") * (int(offset[2]) * 3600 + int(offset[3]) * 60)
    else:
        named = _short_fraction(values.cast(pa.string()))
        return pc.replace_substring_regex(named, r"([+-]\d{2})(\d{2})$", r"\1:\2")
    shift = pa.scalar(seconds * _PER_SECOND[kind.unit], pa.int64())
    local = pc.add_checked(values.cast(pa.int64()), shift).cast(naive)
    texts = _short_fraction(local.cast(pa.string()))
    return pc.binary_join_element_wise(texts, suffix, "")


def _short_fraction(texts: pa.Array) -> pa.Array:
    """Return the texts without `000` at the end of a fraction, as protobuf and Java do."""
    for _ in range(3):
        texts = pc.replace_substring_regex(
            texts, r"(\.|\.\d{3}|\.\d{6})000(Z|[+-]\d{4})?$", r"\1\2"
        )
    return pc.replace_substring_regex(texts, r"\.(Z|[+-]\d{4})?$", r"\1")
