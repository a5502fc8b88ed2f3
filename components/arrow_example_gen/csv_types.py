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
from components.arrow_example_gen.csv_options import CsvOptions

_LARGEST, _SMALLEST = str(2**63 - 1), str(2**63)  # digits of the smallest, without its sign
_NUMBER = {
    mark: rf"^[+-]?([0-9]+[{mark}]?[0-9]*|[{mark}][0-9]+)([eE][+-]?[0-9]+)?$" for mark in ".,"
}
# As Python, JSON and R write them. They are the ints 1 and 0, as a bool column of Parquet is.
_TRUE = r"^[ \t\r\n\v\f]*(True|true|TRUE)[ \t\r\n\v\f]*$"
_FALSE = r"^[ \t\r\n\v\f]*(False|false|FALSE)[ \t\r\n\v\f]*$"

_MOSTLY_NUMBERS = 0.95  # share of numbers from which on a text among them is an error
_FIRST = 256  # cells from which it is decided whether they repeat
_FEW = 20  # values: too few to say that a text among numbers is an error
_LARGE = "[1-9][0-9]{7}"


def _trimmed(cells: pa.Array) -> pa.Array:
    """Return cells without spaces around them and a plus sign in front."""
    plus = "^\\+([^+\\-\u2212])"  # not +-1
    return pc.replace_substring_regex(pc.ascii_trim_whitespace(cells), plus, r"\1")


def are_numbers(cells: pa.Array, decimal: str) -> pa.Array:
    """Return whether each cell is a plain number; null where it has no value."""
    return _are_plain_numbers(_trimmed(cells), decimal)


def _are_plain_numbers(plain: pa.Array, decimal: str) -> pa.Array:
    number = pc.match_substring_regex(plain, _NUMBER[decimal])
    return pc.or_(number, pc.match_substring_regex(plain, r"^[+-]?(?i:inf|infinity|nan)$"))


def _are_bools(cells: pa.Array) -> pa.Array:
    return pc.or_(pc.match_substring_regex(cells, _TRUE), pc.match_substring_regex(cells, _FALSE))


def bools_as_digits(cells: pa.Array) -> pa.Array:
    """Return the texts with `1` and `0` in place of bools."""
    if not pc.any(_are_bools(cells)).as_py():
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


def _converted(cells: pa.Array, kind: Kind, decimal: str) -> pa.Array:
    """Return texts of which each is such a number, or null, as int64 or float64."""
    plain = _trimmed(cells)
    if kind == "int":
        plain = bools_as_digits(plain)
        return pc.replace_substring_regex(plain, r"[.,]0*$", "").cast(pa.int64())
    if decimal == ",":
        plain = pc.replace_substring(plain, ",", ".")
    return plain.cast(pa.float64())


def read_numbers(cells: pa.Array, kind: Kind, decimal: str) -> tuple[pa.Array, list[int]]:
    """Return texts as numbers, null where one is none, and the places of such texts."""
    cells = pc.ascii_trim_whitespace(cells)
    if kind == "int":
        # 1,000 is not 1 where the mark is a point.
        whole = pc.match_substring_regex(cells, rf"^[+-]?[0-9]+([{decimal}]0*)?$")
        digits = pc.replace_substring_regex(cells, rf"[{decimal}]0*$", "")
        fits = pc.and_not(pc.fill_null(whole, True), beyond_int64(digits))
    else:
        fits = pc.fill_null(are_numbers(cells, decimal), True)
    wrong = pc.invert(fits)
    places = wrong.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
    numbers = pc.replace_with_mask(cells, wrong, pa.scalar(None, pa.string()))
    return _converted(numbers, kind, decimal), places


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
        zero_led: whole numbers that begin with a 0, as codes do.
        beyond: the first whole number that int64 does not hold.
        text: the first text.
        comma: whether any number with a comma is among `whole_with_point`, and whether any with a
            point.
        bools: `True`, `false` and the like, which are among the texts.
        large: whether a whole number has 8 digits or more, which float32 may round.
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
        super().__init__(f"column {column!r}: {value!r} is {message}")
        self.column, self.value = column, value


@dataclass(frozen=True)
class CsvTypes:
    """What all cells of a data set say.

    Attributes:
        kinds: column -> what tf.Example makes of it, None where no cell has a value.
        decimal: the mark in numbers.
    """

    kinds: Mapping[str, Kind | None] = field(default_factory=dict)
    decimal: str = "."

    def converted(self, name: str, cells: pa.Array) -> pa.Array:
        """Return the cells of a column as int64, float64 or string, null without a value."""
        kind = self.kinds[name]
        if kind == "string":
            return cells
        if kind is None:
            return pa.nulls(len(cells))
        if _repeats(cells):
            encoded = cells.dictionary_encode()
            distinct = _converted(encoded.dictionary, kind, self.decimal)
            return distinct.take(encoded.indices)
        return _converted(cells, kind, self.decimal)


def count(block: pa.RecordBatch) -> Counts:
    """Count by column what the cells of a block of texts look like."""
    return dict(zip(block.schema.names, map(_count, block.columns), strict=True))


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
    return CsvTypes(kinds, decimal)


class _Texts(NamedTuple):
    """Texts, and how often each occurs, int `[texts]`."""

    texts: pa.Array
    times: np.ndarray

    @property
    def total(self) -> int:
        return int(self.times.sum())

    def count(self, mask: pa.Array) -> int:
        return int(self.times[mask.to_numpy(zero_copy_only=False)].sum())

    def any(self, pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(self.texts, pattern)).as_py())

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
        return _Texts(_trimmed(cells), np.ones(len(cells), np.int64))
    counts = cells.value_counts()
    return _Texts(_trimmed(counts.field("values")), counts.field("counts").to_numpy())


def _count(cells: pa.Array) -> CellCounts:
    texts = _distinct(cells.drop_null())
    whole, left = texts.split(pc.match_substring_regex(texts.texts, r"^[+-]?[0-9]+$"))
    zero_led = whole.count(pc.match_substring_regex(whole.texts, r"^[+-]?0[0-9]"))
    with_point, left = left.split(pc.match_substring_regex(left.texts, r"^[+-]?[0-9]+[.,]0*$"))
    if len(with_point.texts):
        digits = pc.replace_substring_regex(with_point.texts, "[.,]0*$", "")
        beyond, with_point = with_point.split(beyond_int64(digits))
        left = _Texts(
            pa.concat_arrays([beyond.texts, left.texts]), np.concatenate([beyond.times, left.times])
        )
    points, left = left.split(_are_plain_numbers(left.texts, "."))
    commas, others = left.split(_are_plain_numbers(left.texts, ","))
    return CellCounts(
        missing=cells.null_count,
        whole=whole.total,
        whole_with_point=with_point.total,
        points=points.total,
        commas=commas.total,
        texts=others.total,
        zero_led=zero_led,
        beyond=_first(whole.texts.filter(beyond_int64(whole.texts))),
        text=_first(others.texts),
        comma=(with_point.any(","), with_point.any(r"\.")),
        bools=others.count(_are_bools(others.texts)),
        large=whole.any(_LARGE) or with_point.any(_LARGE),
    )


def _first(texts: pa.Array) -> str | None:
    return texts[0].as_py() if len(texts) else None


def decimal_of(counts: Counts, options: CsvOptions, delimiter: str) -> str:
    """Return the mark in numbers: the option, or a comma if no column contradicts it."""
    if options.decimal is not None:
        return options.decimal
    if delimiter == ",":
        return "."  # a comma within quotes is one of thousands, as likely
    columns = [column for name, column in counts.items() if name not in options.text]
    commas = any(c.commas or c.comma[0] for c in columns if not c.texts and not c.points)
    points = any(c.points or c.comma[1] for c in columns)
    return "," if commas and not points else "."


def _kind(name: str, column: CellCounts, decimal: str, options: CsvOptions) -> Kind | None:
    if column.present == 0:
        return None
    if name in options.text:
        return "string"
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
            f"text, and {numbers:,} of {column.present:,} values are numbers. Correct it, add it "
            "to data.csv.missing (or missing_in, for this column alone) where it says that there "
            "is no value, or name the column in data.csv.text where its numbers are codes.",
        )
    return "string"


def _number_kind(column: CellCounts) -> Kind:
    if column.points or column.commas:
        return "float"
    if column.beyond is not None:
        return "string"
    # pandas writes whole numbers beside missing ones as 60.0; float32 would round large ones.
    is_whole = column.whole_with_point == 0 or column.missing or column.large
    return "int" if is_whole else "float"
