"""What the texts of a CSV column are: whole numbers, numbers or texts, decided by all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.csv_numbers import (
    are_bools,
    are_plain_numbers,
    beyond_int64,
    converted,
    has_format,
    plain_numbers,
    trimmed,
)
from components.arrow_example_gen.csv_options import CsvOptions, NumberFormat

_MOSTLY_NUMBERS = 0.95
"""Share of numbers from which on a text among them is an error."""

_FIRST = 256  # cells from which it is decided whether they repeat
_FEW = 20  # values: too few to say that a text among numbers is an error
_WHOLE = r"^[+-]?[0-9]+$"
_WHOLE_WITH_POINT = r"^[+-]?[0-9]+[.,]0*$"
_LARGE = "[1-9][0-9]{7}"


@dataclass(frozen=True)
class CellCounts:
    """How many cells of a column look like what.

    Attributes:
        missing: without a value.
        whole: whole numbers; beyond the 64 bits of int64 too.
        whole_with_point: `60.0` with a point or comma and nothing but zeros behind it.
        points: other numbers that may have a point (inf and nan are such).
        commas: other numbers that have a comma.
        texts: none of these.
        bools: `True`, `false` and the like, which are among the texts.
        large: whether a whole number has 8 digits or more, which float32 may round.
        zero_led: whole numbers that begin with a 0, as codes do.
        beyond: the first whole number that int64 does not hold.
        text: the first text.
        comma: whether any number with a comma is among `whole_with_point`, and whether any with a
            point.
    """

    missing: int = 0
    whole: int = 0
    whole_with_point: int = 0
    points: int = 0
    commas: int = 0
    texts: int = 0
    zero_led: int = 0
    beyond: str | None = None
    text: str | None = None
    comma: tuple[bool, bool] = (False, False)
    bools: int = 0
    large: bool = False

    @property
    def present(self) -> int:
        """Cells with a value."""
        return self.whole + self.whole_with_point + self.points + self.commas + self.texts

    def __add__(self, other: CellCounts) -> CellCounts:
        """Return the counts of both, these first."""
        return CellCounts(*map(_both, vars(self).values(), vars(other).values()))


Counts = Mapping[str, CellCounts]


def _both(first: Any, second: Any) -> Any:
    if isinstance(first, tuple):
        return tuple(map(_both, first, second))
    if isinstance(first, bool):
        return first or second
    return first + second if isinstance(first, int) else second if first is None else first


class MixedColumn(ValueError):
    """The text `value` among the numbers of `column`."""

    def __init__(self, column: str, value: str, message: str):
        super().__init__(message)
        self.column, self.value = column, value


@dataclass(frozen=True)
class CsvTypes:
    """What all cells of a data set say.

    Attributes:
        kinds: column -> what tf.Example makes of it, None where no cell has a value.
        decimal: the mark in numbers.
        formats: column -> how it writes numbers for people.
    """

    kinds: Mapping[str, Kind | None] = field(default_factory=dict)
    decimal: str = "."
    formats: Mapping[str, NumberFormat] = field(default_factory=dict)

    def converted(self, name: str, cells: pa.Array) -> pa.Array:
        """Return the cells of a column as int64, float64 or string, null without a value."""
        kind = self.kinds[name]
        if kind == "string":
            return cells
        if kind is None:
            return pa.nulls(len(cells))
        form = self.formats.get(name)
        if _repeats(cells):
            encoded = cells.dictionary_encode()
            distinct = converted(encoded.dictionary, kind, self.decimal, form)
            return distinct.take(encoded.indices)
        return converted(cells, kind, self.decimal, form)


def count(block: pa.RecordBatch, formats: Mapping[str, NumberFormat] | None = None) -> Counts:
    """Count by column what the cells of a block of texts look like.

    Of a column with a format, cells that are written otherwise count as texts.
    """
    formats = formats or {}
    return {
        name: count_formatted(cells, formats[name]) if name in formats else _count(cells)
        for name, cells in zip(block.schema.names, block.columns, strict=True)
    }


def together(counts: Iterable[Counts]) -> Counts:
    """Return the counts of several blocks, in their order."""

    def both(all_: Counts, one: Counts) -> Counts:
        return {name: all_[name] + one[name] for name in all_}

    return reduce(both, counts)


def decide(counts: Counts, options: CsvOptions, delimiter: str) -> CsvTypes:
    """Decide the kind of each column by the counts of all cells.

    Raises:
        MixedColumn: a column of numbers has a text in it. It names no line: the caller knows files.
    """
    decimal = decimal_of(counts, options, delimiter)
    kinds: dict[str, Kind | None] = {
        name: _kind(name, column, decimal, options) for name, column in counts.items()
    }
    return CsvTypes(kinds, decimal, options.formatted)


class _Texts(NamedTuple):
    """Texts, and how often each occurs, int `[texts]`."""

    texts: pa.Array
    times: np.ndarray

    @property
    def total(self) -> int:
        return int(self.times.sum())

    def count(self, mask: pa.Array) -> int:
        return int(self.times[mask.to_numpy(zero_copy_only=False)].sum())

    def split(self, mask: pa.Array) -> tuple[_Texts, _Texts]:
        """Return the texts of the mask, and the others."""
        chosen = mask.to_numpy(zero_copy_only=False)
        those, others = self.texts.filter(mask), self.texts.filter(pc.invert(mask))
        return _Texts(those, self.times[chosen]), _Texts(others, self.times[~chosen])


def _repeats(cells: pa.Array) -> bool:
    """Whether the first cells are mostly repeated, so that each distinct one is looked at once."""
    return len(cells.slice(0, _FIRST).unique()) < min(len(cells), _FIRST) / 2


def _distinct(cells: pa.Array) -> _Texts:
    """Return cells, none of them missing, in the order of their first occurrence."""
    if not _repeats(cells):
        return _Texts(cells, np.ones(len(cells), np.int64))
    counts = cells.value_counts()
    return _Texts(counts.field("values"), counts.field("counts").to_numpy())


def _count(cells: pa.Array) -> CellCounts:
    present = cells.drop_null()
    missing = len(cells) - len(present)
    found = _distinct(present)
    found = _Texts(trimmed(found.texts), found.times)
    whole, left = found.split(pc.match_substring_regex(found.texts, _WHOLE))
    zero_led = whole.count(pc.match_substring_regex(whole.texts, r"^[+-]?0[0-9]"))
    with_point, left = left.split(pc.match_substring_regex(left.texts, _WHOLE_WITH_POINT))
    if len(with_point.texts):
        digits = pc.replace_substring_regex(with_point.texts, "[.,]0*$", "")
        beyond, with_point = with_point.split(beyond_int64(digits))
        left = _Texts(
            pa.concat_arrays([beyond.texts, left.texts]), np.concatenate([beyond.times, left.times])
        )
    marks = tuple(_any(pc.match_substring(with_point.texts, mark)) for mark in ",.")
    points, left = left.split(are_plain_numbers(left.texts, "."))
    commas, others = left.split(are_plain_numbers(left.texts, ","))
    return CellCounts(
        missing,
        whole.total,
        with_point.total,
        points.total,
        commas.total,
        others.total,
        zero_led,
        _first(whole.texts.filter(beyond_int64(whole.texts))),
        _first(others.texts),
        (marks[0], marks[1]),
        others.count(are_bools(others.texts)),
        any(_any(pc.match_substring_regex(each.texts, _LARGE)) for each in (whole, with_point)),
    )


def count_formatted(cells: pa.Array, form: NumberFormat) -> CellCounts:
    """Count what the numbers in a form are, and the cells in another form."""
    plain = trimmed(cells.drop_null())
    is_written = has_format(plain, form)
    texts = plain.filter(pc.invert(is_written))
    others = CellCounts(len(cells) - len(plain), texts=len(texts), text=_first(texts))
    return _count(plain_numbers(plain.filter(is_written), form)) + others


def _first(texts: pa.Array) -> str | None:
    return texts[0].as_py() if len(texts) else None


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def decimal_of(counts: Counts, options: CsvOptions, delimiter: str) -> str:
    """Return the mark in numbers: the option, or a comma if no column contradicts it."""
    if options.decimal is not None:
        return options.decimal
    if delimiter == ",":
        return "."  # a comma within quotes is one of thousands, as likely
    other = {*options.text, *options.formatted}
    columns = [column for name, column in counts.items() if name not in other]
    commas = any(c.commas or c.comma[0] for c in columns if not c.texts and not c.points)
    points = any(c.points or c.comma[1] for c in columns)
    return "," if commas and not points else "."


def _kind(name: str, column: CellCounts, decimal: str, options: CsvOptions) -> Kind | None:
    if column.present == 0:
        return None
    if name in options.text:
        return "string"
    if name in options.formatted:
        if column.text is not None:
            raise MixedColumn(
                name,
                column.text,
                f"column {name!r}: {column.text!r} is not a number like "
                f"{options.formatted[name].example}, as data.csv.formatted says of this column. "
                "Correct it, or add it to data.csv.missing_in where it says that there is no "
                "value.",
            )
        return _number_kind(column)
    if column.bools == column.present:
        return "int"
    other_mark = column.commas if decimal == "." else column.points
    if other_mark == 0 and column.comma[0 if decimal == "." else 1]:
        other_mark = column.whole_with_point
    texts = column.texts + other_mark
    if texts == 0:
        return _number_kind(column)
    numbers = column.present - texts
    if column.text is not None and numbers >= max(_MOSTLY_NUMBERS * column.present, _FEW):
        raise MixedColumn(
            name,
            column.text,
            f"column {name!r}: {column.text!r} is text, and {numbers:,} of {column.present:,} "
            "values are numbers. Correct it, add it to data.csv.missing (or missing_in, for this "
            "column alone) where it says that there is no value, or name the column in "
            "data.csv.text where its numbers are codes.",
        )
    return "string"


def _number_kind(column: CellCounts) -> Kind:
    if column.beyond is not None and not (column.points or column.commas):
        return "string"
    if column.points or column.commas:
        return "float"
    # pandas writes whole numbers beside missing ones as 60.0; float32 would round large ones.
    is_whole = column.whole_with_point == 0 or column.missing or column.large
    return "int" if is_whole else "float"
