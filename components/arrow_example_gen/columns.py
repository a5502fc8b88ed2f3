"""An Arrow column as tf.Example holds it: a list of int64, float32 or bytes for each row.

    Arrow                                        tf.Example
    integers, bool (0 or 1), duration            int
    floats, decimals                             float
    text, binary                                 string (bytes)
    date, time, timestamp                        string, ISO 8601 (see `as_text`)
    uint64 of which a value is 2^63 or more      string, in decimal (as TFX reads it from CSV)
    a dictionary of these                        its values
    a list of these                              several values in a row
    a struct with `bytes` (an image, as
    Hugging Face's datasets write it)            its bytes
    anything else (struct, map, list of lists)   nothing: the column is left out

Zeros, False and empty texts are values. A missing value is a row without any; one within a list is
NaN or an empty text, which Transform takes as missing. Among several ints it is an error: there is
no such int, and what follows would move up by one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

Kind = Literal["int", "float", "string"]

Rows: TypeAlias = tuple[np.ndarray, pa.RecordBatch]
"""What files are read as: the place of each row in its file, int64 `[rows]`; rows of `as_batch`."""

Agreed: TypeAlias = tuple[Mapping[str, "Kind | None"], list[Any], Any]
"""What the files of a table say together: the kind of each column, the parts, and what reads them.

A plain tuple: it is a side input on workers, where Beam makes one of a named tuple.
"""

Part: TypeAlias = tuple[str, Any, int]
"""What is read at once: a file, the part of it, and the place of its first row, once agreed."""


class Block(NamedTuple):
    """Rows of a part, as the file holds them.

    Attributes:
        part: where they are from.
        places: the place of each row in its file, see `Rows`.
        cells: the columns; one without a value in these rows may be absent.
    """

    part: Part
    places: np.ndarray
    cells: pa.RecordBatch

    def column(self, name: str) -> pa.Array:
        """Return a column."""
        place = self.cells.schema.get_field_index(name)
        return self.cells[place] if place >= 0 else pa.nulls(len(self.places))

    def take(self, rows: np.ndarray) -> Block:
        """Return some of the rows, by number."""
        return Block(self.part, self.places[rows], self.cells.take(pa.array(rows)))


@dataclass(frozen=True)
class Table(ABC):
    """Files of one format and of equal columns.

    Attributes:
        files: their paths.
    """

    files: tuple[str, ...]

    @property
    def dropped(self) -> str:
        """Which columns are left out, for the log; empty where there are none."""
        return ""

    @abstractmethod
    def parts(self, file: str, *, whole: bool = False) -> list[Part]:
        """Return what several workers, or with `whole` one reader, read of a file, in its order."""

    @abstractmethod
    def read_blocks(
        self,
        part: Part,
        columns: Sequence[str] | None = None,
        *,
        unreadable: list[str] | None = None,
    ) -> Iterator[Block]:
        """Yield the rows of a part.

        Args:
            part: of `parts`.
            columns: those to read; None: all.
            unreadable: gets a line for each row that cannot be read, which is skipped; None: such
                a row is an error.
        """

    def count(self, block: Block) -> Any:
        """Return what a block says of the types; None where the files themselves say them."""
        return None

    def together(self, counts: Iterable[Any]) -> Any:
        """Return what several blocks say, in their order."""
        return None

    def types(self, counts: Any) -> Any:
        """Decide the types of the columns; `kinds` of the result are what tf.Example holds.

        Raises:
            ValueError: the files do not agree: names file and row.
        """
        return None

    def typed(self, block: Block, name: str, types: Any) -> pa.Array:
        """Return a column as numbers or texts, as exact as the file has them."""
        return block.column(name)

    def decoded(
        self, block: Block, kinds: Mapping[str, Kind | None], types: Any = None
    ) -> list[pa.ListArray]:
        """Return the columns that have a kind, in the order of `kinds`, as `as_lists` has them."""
        return [
            as_lists(self.typed(block, name, types), kind)
            for name, kind in kinds.items()
            if kind is not None
        ]

    def all_blocks(
        self, columns: Sequence[str] | None = None, *, unreadable: list[str] | None = None
    ) -> Iterator[Block]:
        """Yield the rows of all files, see `read_blocks`."""
        for file in self.files:
            for part in self.parts(file, whole=True):
                yield from self.read_blocks(part, columns, unreadable=unreadable)

    def examine(self, part: Part) -> tuple[int, Any]:
        """Return the number of rows of a part, and what they say of the types."""
        rows, counts = 0, self.together([])
        for block in self.read_blocks(part):
            rows += len(block.places)
            counts = self.together([counts, self.count(block)])
        return rows, counts

    def agree(self, examined: Iterable[tuple[Part, tuple[int, Any]]]) -> Agreed:
        """Return what the examined parts say together, whoever examined them first."""
        order = {file: number for number, file in enumerate(self.files)}
        in_order = sorted(examined, key=lambda each: (order[each[0][0]], each[0][1]))
        parts: list[Part] = []
        rows = dict.fromkeys(self.files, 0)
        for (file, place, _), (count, _) in in_order:
            parts.append((file, place, rows[file]))
            rows[file] += count
        types = self.types(self.together(counts for _, (_, counts) in in_order))
        return types.kinds, parts, types

    def read(
        self, part: Part, agreed: Agreed, *, unreadable: list[str] | None = None
    ) -> Iterator[Rows]:
        """Yield the rows of a part, see `Agreed` and `read_blocks`."""
        kinds, _, types = agreed
        names = [name for name, kind in kinds.items() if kind is not None]
        for block in self.read_blocks(part, names or None, unreadable=unreadable):
            lists = self.decoded(block, kinds, types)
            yield block.places, as_batch(lists, kinds, len(block.places))


_VALUES: dict[Kind, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float32(),
    "string": pa.binary(),
}

_UTC = {"utc", "z", "gmt", "etc/utc", "etc/gmt", "zulu", "universal", "uct"}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_list(kind: pa.DataType) -> bool:
    """Whether a row holds a list."""
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def kind_of(column: pa.DataType) -> Kind | None:
    """Return what tf.Example makes of a column, None where it cannot hold it."""
    if is_list(column):
        column = column.value_type
    if types.is_dictionary(column):
        column = column.value_type
    if types.is_integer(column) or types.is_boolean(column) or types.is_duration(column):
        return "int"
    if types.is_floating(column) or types.is_decimal(column):
        return "float"
    if is_text(column) or types.is_temporal(column) or _bytes_field(column) is not None:
        return "string"
    return None


def _bytes_field(column: pa.DataType) -> int | None:
    """Return the place of the bytes in a struct {bytes, path}."""
    place = column.get_field_index("bytes") if types.is_struct(column) else -1
    return place if place >= 0 and is_text(column[place].type) else None


def as_lists(column: pa.Array, kind: Kind) -> pa.ListArray:
    """Return a column as `list<int64 | float | binary>`, an empty list where there is no value.

    Raises:
        pa.ArrowException: a value does not fit the kind, or is missing in a list of several ints.
    """
    if (place := _bytes_field(column.type)) is not None:
        column = pc.struct_field(column, [place])
    if types.is_null(column.type):
        return _lists(np.zeros(len(column) + 1, np.int64), pa.array([], _VALUES[kind]))
    if not is_list(column.type):
        column = as_text(column) if kind == "string" else column
        ends = np.cumsum(_valid(column))
        return _lists(np.concatenate([[0], ends]), _converted(column.drop_null(), kind))
    offsets, values = flat_values(column)
    values = as_text(values) if kind == "string" else values
    valid = _valid(values)
    if not valid.all():
        if kind == "int":
            if len(holes(column)):
                raise pa.ArrowInvalid("a list of ints has a missing value")
            offsets = np.concatenate([[0], np.cumsum(valid)])[offsets]
            return _lists(offsets, _converted(values.drop_null(), kind))
        filled = np.full(len(values), np.nan) if kind == "float" else np.full(len(values), b"")
        known = pa.array(np.cumsum(valid) - 1, mask=~valid)
        taken = _converted(values.drop_null(), kind).take(known)
        missing = pa.array(filled, _VALUES[kind])
        return _lists(offsets, pc.coalesce(taken, missing))
    return _lists(offsets, _converted(values, kind))


def fits(column: pa.Array, kind: Kind) -> bool:
    """Return whether `as_lists` takes a column."""
    try:
        as_lists(column, kind)
    except pa.ArrowException:
        return False
    return True


def as_batch(
    arrays: Sequence[pa.ListArray], columns: Mapping[str, Kind | None], rows: int
) -> pa.RecordBatch:
    """Return rows as ExampleGen writes them: all columns, sorted by name, as TFXIO expects them.

    Args:
        arrays: the columns with a kind, in the order of `columns`, as `as_lists` returns them.
        columns: name -> kind; one without a kind has a missing list in each row.
        rows: their number.
    """
    names = [name for name, kind in columns.items() if kind is not None]
    lists = {name: _large(array) for name, array in zip(names, arrays, strict=True)}
    missing = pa.nulls(rows, list_type(None))
    return pa.RecordBatch.from_arrays(
        [lists.get(name, missing) for name in sorted(columns)], sorted(columns)
    )


def list_type(kind: Kind | None) -> pa.DataType:
    """Return the type of a column of `as_batch`."""
    value = _VALUES[kind or "string"]
    return pa.large_list(pa.large_binary() if types.is_binary(value) else value)


def _large(lists: pa.ListArray) -> pa.LargeListArray:
    values = lists.values
    if types.is_binary(values.type):
        values = values.cast(pa.large_binary())
    return pa.LargeListArray.from_arrays(lists.offsets.cast(pa.int64()), values)


def are_usable(values: pa.Array) -> np.ndarray:
    """Return whether Transform takes each value as one: not NaN, infinite or an empty text."""
    if types.is_floating(values.type):
        return np.isfinite(values.to_numpy(zero_copy_only=False))
    if types.is_integer(values.type):
        return np.ones(len(values), bool)
    return pc.binary_length(values).to_numpy(zero_copy_only=False) > 0


def holes(column: pa.Array) -> np.ndarray:
    """Return the rows, by number, with a list of several values of which one is missing."""
    offsets, values = flat_values(column)
    missing = np.concatenate([[0], np.cumsum(~_valid(values))])[offsets]
    return np.flatnonzero((np.diff(missing) > 0) & (np.diff(offsets) > 1))


def _valid(values: pa.Array) -> np.ndarray:
    return values.is_valid().to_numpy(zero_copy_only=False)


def flat_values(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return where each row's values start, and all of them; a missing list has none."""
    if types.is_fixed_size_list(column.type):  # Arrow 10 neither casts nor flattens missing ones
        column = pa.array(column.to_pylist(), pa.list_(column.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]), column.flatten()


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _converted(values: pa.Array, kind: Kind) -> pa.Array:
    """Return values, none of them missing, in tf.Example's type."""
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind == "int":
        return values.cast(pa.int64())
    if kind == "float":
        if types.is_float16(values.type):  # Arrow 10 does not cast it
            return pa.array(values.to_numpy(zero_copy_only=False).astype(np.float32))
        if types.is_decimal(values.type):
            values = values.cast(pa.float64())
        return values.cast(pa.float32(), safe=False)  # as a float in a tf.Example: inf beyond 3e38
    if types.is_fixed_size_binary(values.type):
        return pa.array(values.to_pylist(), pa.binary())
    return values.cast(pa.binary())


def is_text(column: pa.DataType) -> bool:
    """Return whether a type holds texts or bytes."""
    variable = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return column in variable or types.is_fixed_size_binary(column)


def as_text(values: pa.Array) -> pa.Array:
    """Return values as the text that a column of texts gets: the same for every width and unit.

        Arrow                text
        bool                 True, False, as Python and pandas write them to CSV
        integer, duration    decimal digits
        float                1.0, 0.1, 1e+20: the shortest text that is this value
        decimal              all digits of its scale: 1.50
        date                 2013-05-06
        time                 17:30:00, with a fraction of 3, 6 or 9 digits if it has one
        timestamp            2013-05-06 17:30:00, the same, and Z or +05:30 if it has a time zone

    Texts and bytes stay as they are, and null and NaN are null. Arrow's own texts differ by unit
    (`17:30:00` and `17:30:00.000000`) and know no zone `+05:30`.

    Raises:
        pa.ArrowException: values of this type have no text.
    """
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if is_text(kind) or types.is_null(kind):
        return values
    if types.is_boolean(kind):
        return pc.if_else(values, "True", "False")
    if types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False)  # NaN for null, too
        return pa.array([None if n != n else str(n) for n in numbers], pa.string())
    if types.is_decimal(kind):
        texts = [None if value is None else f"{value:f}" for value in values.to_pylist()]
        return pa.array(texts, pa.string())
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
    """Raise a ValueError if a timestamp's zone is not known."""
    if not types.is_timestamp(kind) or kind.tz is None:
        return
    try:
        _timestamp(pa.array([0], kind))
    except pa.ArrowException:
        raise ValueError(
            f"{kind}: no time zone {kind.tz!r} is known on this machine. Write the column in UTC, "
            "with an offset such as +05:30, or with a name such as Europe/Oslo"
        ) from None


def _timestamp(values: pa.Array) -> pa.Array:
    kind = values.type
    naive, zone = pa.timestamp(kind.unit), kind.tz
    if zone is None:
        return _short_fraction(values.cast(pa.string()))
    offset = re.fullmatch(r"([+-])(\d{2}):?(\d{2})", zone)
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


def serialize(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as a tf.Example.

    A missing value (a null or an empty list) is an absent feature. A feature without values would
    be an error for `tf.io.FixedLenFeature`, also with a default value.
    Columns that `kind_of` does not know are left out.
    """
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    known = {
        name: empty_to_null(column if _is_encoded(column.type) else as_lists(column, kind))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if (kind := kind_of(column.type)) is not None
    }
    if not known:
        return [b""] * batch.num_rows
    columns = pa.RecordBatch.from_arrays(list(known.values()), list(known))
    return RecordBatchToExamplesEncoder().encode(columns)


def _is_encoded(kind: pa.DataType) -> bool:
    is_variable = types.is_list(kind) or types.is_large_list(kind)
    return is_variable and kind.value_type in (*_VALUES.values(), pa.large_binary())


def empty_to_null(column: pa.Array) -> pa.Array:
    """Return a column of lists whose empty lists are null; any other column as it is."""
    if not (types.is_list(column.type) or types.is_large_list(column.type)):
        return column
    lengths = np.asarray(column.value_lengths().fill_null(0))
    if lengths.all():
        return column
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(lengths.dtype)
    offsets = pa.array(ends, mask=np.append(lengths == 0, False))
    return type(column).from_arrays(offsets, column.flatten())
