"""What the texts of a CSV column are: whole numbers, numbers or texts, decided by all of them.

Numbers are plain, bools, or written for people (`$1,234.50`, see `NumberFormat`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.csv_options import CsvOptions, NumberFormat

_LARGEST, _SMALLEST = str(2**63 - 1), str(2**63)  # digits of the smallest, without its sign
_NUMBER = {
    mark: rf"^[+-]?([0-9]+[{mark}]?[0-9]*|[{mark}][0-9]+)([eE][+-]?[0-9]+)?$" for mark in ".,"
}
# As Python, JSON and R write them. They are the ints 1 and 0, as a bool column of Parquet is.
_TRUE = r"^[ \t\r\n\v\f]*(True|true|TRUE)[ \t\r\n\v\f]*$"
_FALSE = r"^[ \t\r\n\v\f]*(False|false|FALSE)[ \t\r\n\v\f]*$"

_SPACES = "[ \t\u00a0\u2009\u202f]"
_SIGN = "[+\\-\u2212]"
_BETWEEN = {",": ",", ".": r"\.", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}

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


def has_format(cells: pa.Array, form: NumberFormat) -> pa.Array:
    """Return whether each cell is a number in this format; null where it has no value."""
    return pc.match_substring_regex(cells, _pattern(form.unit, form.thousands, form.decimal))


def _plain_numbers(cells: pa.Array, form: NumberFormat) -> pa.Array:
    """Return the cells, each a number in this format or null, as `-1234.5`."""
    negative = pc.match_substring_regex(cells, "[\\-\u2212(]")
    if form.unit:
        cells = pc.replace_substring(cells, form.unit, "")
    digits = pc.replace_substring_regex(cells, f"[^0-9{form.decimal}]", "")
    if form.decimal == ",":
        digits = pc.replace_substring(digits, ",", ".")
    return pc.if_else(negative, pc.binary_join_element_wise("-", digits, ""), digits)


def _converted(cells: pa.Array, kind: Kind, decimal: str, form: NumberFormat | None) -> pa.Array:
    """Return texts of which each is such a number, or null, as int64 or float64."""
    plain = _trimmed(cells)
    if form is not None:
        plain, decimal = _plain_numbers(plain, form), "."
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
            cells = _plain_numbers(_without(cells, wrong), form)
        if kind == "int":
            # 1,000 is not 1 where the mark is a point.
            whole = pc.match_substring_regex(cells, rf"^[+-]?[0-9]+([{decimal}]0*)?$")
            digits = pc.replace_substring_regex(cells, rf"[{decimal}]0*$", "")
            fits = pc.and_not(pc.fill_null(whole, True), beyond_int64(digits))
        else:
            fits = pc.fill_null(are_numbers(cells, decimal), True)
        wrong = pc.or_(wrong, pc.invert(fits))
        places = wrong.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        return _converted(_without(cells, wrong), kind, decimal, None), places


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
        formats: column -> how it writes numbers for people.
    """

    kinds: Mapping[str, Kind | None] = field(default_factory=dict)
    decimal: str = "."
    formats: Mapping[str, NumberFormat] = field(default_factory=dict)

    def converted(self, name: str, cells: pa.Array) -> pa.Array:
        """Return the cells of a column as int64, float64 or string, null without a value."""
        kind, form = self.kinds[name], self.formats.get(name)
        if kind == "string":
            return cells
        if kind is None:
            return pa.nulls(len(cells))
        if _repeats(cells):
            encoded = cells.dictionary_encode()
            distinct = _converted(encoded.dictionary, kind, self.decimal, form)
            return distinct.take(encoded.indices)
        return _converted(cells, kind, self.decimal, form)


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


def count_formatted(cells: pa.Array, form: NumberFormat) -> CellCounts:
    """Count what the numbers in a form are, and the cells in another form."""
    plain = _trimmed(cells.drop_null())
    is_written = has_format(plain, form)
    texts = plain.filter(pc.invert(is_written))
    others = CellCounts(cells.null_count, texts=len(texts), text=_first(texts))
    return _count(_plain_numbers(plain.filter(is_written), form)) + others


def _first(texts: pa.Array) -> str | None:
    return texts[0].as_py() if len(texts) else None


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
                f"not a number like {options.formatted[name].example}, as data.csv.formatted says "
                "of this column. Correct it, or add it to data.csv.missing_in where it says that "
                "there is no value.",
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
