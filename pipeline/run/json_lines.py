"""Read rows of JSON lines: an object per line, a value per column; errors name line and column."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.common.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind

_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}  # NaN is a missing value
_EXACT = 2**53  # float64 holds all integers up to it
_INT64 = range(-(2**63), 2**63)


class JsonRow(NamedTuple):
    """A row and its line number."""

    line: int
    values: JsonObject


class _TooLarge(str):
    """The digits of a number that exceeds float64."""


class _BadValue(ValueError):
    """The reason why a line is invalid."""


def json_rows(
    file: Path, shown: str, *, needed: Collection[str] = (), unreadable: list[str] | None = None
) -> Iterator[JsonRow]:
    """Yield the rows of a file; NaN, as Python writes it, is a missing value.

    Args:
        file: The file, compressed or not.
        shown: Path for messages.
        needed: Columns that a model reads; they cannot have objects as values.
        unreadable: Receives the reason for each line that cannot be read; None: raise instead.

    Raises:
        ValueError: A line is not an object of values; the message names line and column.
    """
    from components.arrow_example_gen.decompress import open_decompressed

    # Invalid UTF-8 bytes become lone surrogates, so that one line is refused, not the file.
    with io.TextIOWrapper(
        open_decompressed(str(file)), encoding="utf-8-sig", errors="surrogateescape"
    ) as stream:
        for line, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                yield JsonRow(line, _row(text, needed))
            except _BadValue as error:
                if unreadable is None:
                    raise ValueError(f"{shown}, line {line}: {error}") from None
                unreadable.append(f"line {line}: {error}")


def json_batch(
    rows: Sequence[JsonRow],
    names: Sequence[str],
    kinds: Mapping[str, Kind] | None = None,
    *,
    formatted: Collection[str] = (),
) -> pa.RecordBatch:
    """Return rows as columns; a column has one type if all its values do, else it has texts.

    Args:
        rows: The rows.
        names: The columns.
        kinds: Type of each column that a model reads; its numbers are converted to this type.
        formatted: Columns for which the configuration says how their texts write numbers.

    Raises:
        ValueError: A column of `formatted` has numbers and texts.
    """
    import pyarrow as pa

    kinds = kinds or {}
    columns = []
    for name in names:
        values = [row.values.get(name) for row in rows]
        try:
            columns.append(_column(values, kinds.get(name), is_formatted=name in formatted))
        except _BadValue as error:
            raise ValueError(
                f"line {rows[0].line} to {rows[-1].line}: column {name!r} {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, list(names))


def _row(text: str, needed: Collection[str]) -> JsonObject:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _BadValue(
            f"byte 0x{ord(text[error.start]) & 0xFF:02x} is not text in UTF-8. Write the file in "
            "UTF-8."
        ) from None
    try:
        row = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_float,
            parse_int=_int,
            parse_constant=_CONSTANTS.__getitem__,
        )
    except _BadValue:
        raise
    except RecursionError:
        raise _BadValue("is nested too deeply. Write one object of values per line.") from None
    except ValueError as error:
        hint = ", not one array" if text.lstrip().startswith("[") else ""
        raise _BadValue(f"is not JSON ({error}). Write one object per line{hint}.") from None
    if not isinstance(row, dict):
        raise _BadValue('is not an object. Write each row as {"column": value, ...}.')
    return {name: _value(name, value, needed) for name, value in row.items()}


def _object(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(n for n, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise _BadValue(f"names {name!r} twice. Name each column once.")
    return found


def _float(text: str) -> float | _TooLarge:
    value = float(text)
    return value if math.isfinite(value) else _TooLarge(text)


def _int(text: str) -> int | _TooLarge:
    if len(text) <= 300:  # float64 ends at 1.8e308, and Python reads at most 4,300 digits
        return int(text)
    return _TooLarge(text)


def _value(name: str, value: JsonValue, needed: Collection[str]) -> JsonValue:
    _check_text(name, name)
    if isinstance(value, dict):
        if name in needed:
            raise _BadValue(f"column {name!r} is an object, not a value.")
        return json.dumps(value)
    if isinstance(value, list):
        if any(isinstance(each, dict | list) for each in value):
            if name in needed:
                raise _BadValue(f"column {name!r} has a list of lists or objects, not of values.")
            return json.dumps(value)
        return [_scalar(name, each) for each in value]
    return _scalar(name, value)


def _scalar(name: str, value: JsonValue) -> JsonValue:
    if isinstance(value, _TooLarge):
        digits = value if len(value) <= 40 else f"{value[:20]}... ({len(value):,} characters)"
        raise _BadValue(f"column {name!r}: {digits} is beyond 1.8e308, the largest float64.")
    if isinstance(value, str):
        _check_text(name, value)
    return value


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _BadValue(
            f"column {name!a}: \\u{ord(text[error.start]):04x} is half of a surrogate pair, "
            "which is not text."
        ) from None


def _column(values: Sequence[JsonValue], kind: Kind | None, *, is_formatted: bool) -> pa.Array:
    import pyarrow as pa

    if not any(isinstance(value, list) for value in values):
        return _array(values, kind, is_formatted=is_formatted)
    # A lone NaN is a missing value, like None.
    lists = [v if isinstance(v, list) else [] if v is None or v != v else [v] for v in values]
    offsets = [0]
    for each in lists:
        offsets.append(offsets[-1] + len(each))
    flat = _array([v for each in lists for v in each], kind, is_formatted=is_formatted)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _array(values: Sequence[JsonValue], kind: Kind | None, *, is_formatted: bool) -> pa.Array:
    import pyarrow as pa

    found = {type(value) for value in values if value is not None}
    if not found:
        return pa.nulls(len(values))
    if found == {int} and all(value is None or value in _INT64 for value in values):
        return pa.array(values, pa.int64())
    if found == {float}:
        return pa.array(values, pa.float64())
    if found == {bool}:
        return pa.array(values, pa.bool_())
    numbers = _numbers(values, kind) if str not in found else None
    if numbers is not None:
        return numbers
    if is_formatted and found != {str}:
        raise _BadValue(
            "has texts among numbers, and data.csv.formatted says how its texts write numbers. "
            "Write all as numbers or all as texts."
        )
    # As in `value_text.as_text`, even for NaN and for other types in the column.
    texts = [None if value is None or value != value else str(value) for value in values]
    return pa.array(texts, pa.string())


def _numbers(values: Sequence[JsonValue], kind: Kind | None) -> pa.Array | None:
    """Return numbers and bools as one numeric column without rounding, or None."""
    import pyarrow as pa

    if kind == "float":
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if kind == "int":
        whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        if all(v is None or (not isinstance(v, float) and v in _INT64) for v in whole):
            return pa.array([None if v is None else int(v) for v in whole], pa.int64())
        if all(v is None or isinstance(v, float) or abs(v) <= _EXACT for v in values):
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
    return None
