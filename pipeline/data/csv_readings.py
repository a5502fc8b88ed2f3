"""Ways to read a CSV column: words for missing values, units, and human-readable numbers.

An example of such a number is `$1,234.50` or `23.4%`. All cells of the column are counted.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.csv_options import NumberFormat
from components.arrow_example_gen.csv_table import CsvTable
from components.arrow_example_gen.csv_types import (
    CellCounts,
    are_numbers,
    count_formatted,
    has_format,
)
from pipeline.data.tables import all_blocks

_RARE = 0.1  # of a column's cells, together: more of them may have a meaning
_FEW_WORDS = 20  # distinct words
_ENOUGH = 20  # numbers or dates; with fewer, an unknown word is not rare
_LONGEST_WORD = 60  # characters
_MISSING = {
    *("-", "--", "---", ".", "..", "...", "*", "?", "_", "/", "n/a", "na", "n.a.", "n.a", "#n/a"),
    *("#na", "<na>", "<n/a>", "nan", "nat", "null", "(null)", "#null!", "#value!", "#div/0!"),
    *("#ref!", "\u2013", "\u2014"),
}
_OFTEN_MISSING = {
    *("none", "nil", "unknown", "missing", "undefined", "unavailable", "not available", "tbd"),
    *("(blank)", "blank", "empty", "unspecified", "not applicable"),
}
_ZERO_DATE_WORD = re.compile(r"0+([-./]0+){2}([ T]0+:0+(:0+(\.0+)?)?)?")
_CENSORED = re.compile(r"([<>\u2264\u2265~]=?\s*[\d.,]+|[\d.,]+\s*\+)")


def missing_words(words: Mapping[str, int], values: int) -> list[str] | None:
    """Return the words beside so many numbers or dates; None if any of them may have a meaning.

    Words such as `n/a` may fill up to half of the cells. Other words together may fill a tenth, if
    they have no digits (as codes have) or are censored numbers such as `<5`.
    """
    if sum(words.values()) > values or len(words) > _FEW_WORDS:
        return None
    others = {
        word: cells
        for word, cells in words.items()
        if word.lower() not in _MISSING and not _ZERO_DATE_WORD.fullmatch(word)
    }
    if sum(others.values()) > _RARE * (values + sum(words.values())):
        return None
    for word in others:
        is_code = any(map(str.isdigit, word)) and _CENSORED.fullmatch(word) is None
        unlikely = values < _ENOUGH or len(word) > _LONGEST_WORD or is_code
        if unlikely and word.lower() not in _OFTEN_MISSING:
            return None
    return list(words)


_SAMPLED = 1_000  # distinct texts of a column
_FEWEST_SHORT, _SHORT = 3, 0.01  # numbers below 1,000, and their share: fewer may be slips
_DATE = (
    r"^\s*(\d{1,4}[-./ ]\s?\w{1,9}[-./ ,]\s?\d{1,4}([T ,].*)?|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}.*"
    r"|\d{4}-\d{2}-\d{2}.*)\s*$"
)
_ZERO_DATE = r"^\s*0+[-./]0+[-./]0+([ T:.]|0)*$"


@dataclass
class Reading:
    """A column that is read in one way.

    Attributes:
        form: Format of its numbers, or only their decimal mark; None: read as dates.
        values: Number of cells that can be read this way.
        words: The other cells, with counts; incomplete if there are many.
        seen: Number of cells that were read.
        counts: Counts of the numbers.
        lengths: Shortest and longest number with thousands separators, in characters.
        zero_ended: Number of such numbers that end with 0.
        short: Number of others of one to three digits, except 0.
        long: Number of others of four digits or more.
    """

    form: NumberFormat | str | None
    values: int = 0
    words: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    counts: CellCounts | None = None
    lengths: tuple[int, int] | None = None
    zero_ended: int = 0
    short: int = 0
    long: int = 0

    @property
    def has_many_words(self) -> bool:
        """Whether there are more distinct words than may represent missing values."""
        return len(self.words) > _FEW_WORDS

    @property
    def shows_thousands(self) -> bool:
        """Whether numbers below 1,000, and those alone, have no separator, and decimals no end."""
        enough = self.short >= max(_FEWEST_SHORT, _SHORT * self.values)
        return enough and self.zero_ended > 0 and not self.long

    @property
    def is_ruled_out(self) -> bool:
        """Whether most cells cannot be read this way, so that the rest need not be tried."""
        return self.has_many_words and 2 * self.values < self.seen

    def add(self, cells: pa.Array) -> None:
        """Count more cells, none of them missing."""
        trimmed = pc.ascii_trim_whitespace(cells)
        if self.form is None:
            zero = pc.match_substring_regex(trimmed, _ZERO_DATE)
            fits = pc.and_not(pc.match_substring_regex(trimmed, _DATE), zero)
        elif isinstance(self.form, str):
            fits = are_numbers(trimmed, self.form)
        else:
            fits = has_format(trimmed, self.form)
            found = count_formatted(trimmed.filter(fits), self.form)
            self.counts = found if self.counts is None else self.counts + found
            self._measure(trimmed.filter(fits), self.form)
        others = trimmed.filter(pc.invert(fits))
        self.values += len(cells) - len(others)
        self.seen += len(cells)
        if self.has_many_words:
            return
        words = pc.value_counts(others)
        for pair in words.slice(0, _FEW_WORDS + 1).to_pylist():
            self.words[pair["values"]] += pair["counts"]

    def _measure(self, numbers: pa.Array, form: NumberFormat) -> None:
        if not form.thousands:
            return
        is_grouped = pc.match_substring_regex(numbers, r"[0-9][^0-9][0-9]{3}")
        grouped, others = numbers.filter(is_grouped), numbers.filter(pc.invert(is_grouped))
        self.zero_ended += _matches(grouped, r"[0-9]0[^0-9]*$")
        self.short += _matches(others, r"^[^0-9]*[1-9][0-9]{0,2}[^0-9]*$")
        self.long += _matches(others, r"[0-9]{4}")
        if not len(grouped):
            return
        found = pc.min_max(pc.utf8_length(grouped)).as_py()
        low, high = self.lengths or (found["min"], found["max"])
        self.lengths = min(low, found["min"]), max(high, found["max"])


def _matches(cells: pa.Array, pattern: str) -> int:
    return pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0


def sample_texts(table: CsvTable, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the first `_SAMPLED` distinct texts of each column, without surrounding spaces."""
    found: dict[str, dict[str, None]] = {name: {} for name in names}
    for block in all_blocks(table):
        short = [name for name in names if len(found[name]) < _SAMPLED]
        if not short:
            break
        for name in short:
            cells = pc.unique(pc.ascii_trim_whitespace(block.column(name).drop_null()))
            found[name].update(dict.fromkeys(cells.slice(0, _SAMPLED).to_pylist()))
    return {name: list(texts)[:_SAMPLED] for name, texts in found.items()}


def try_readings(table: CsvTable, ways: Mapping[str, Sequence[Reading]]) -> None:
    """Count all cells of columns in each of their readings."""
    for block in all_blocks(table):
        for name, readings in ways.items():
            cells = block.column(name).drop_null()
            for reading in readings:
                if not reading.is_ruled_out:
                    reading.add(cells)


_CURRENCIES = {
    *("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "INR", "JPY"),
    *("KRW", "MXN", "NOK", "NZD", "PLN", "RUB", "SEK", "SGD", "TRY", "USD", "ZAR", "Fr.", "Rs"),
    *("Rs.", "kr", "kr.", "z\u0142", "K\u010d", "Ft", "R$", "US$", "A$", "C$", "CA$", "AU$"),
    *("NZ$", "HK$", "S$", "NT$"),
}
_NUMBER = re.compile(
    r"[(+\-\u2212\s]*(?P<before>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?[(+\-\u2212\s]*"
    r"(?:\d[\d.,'\u2019\s]*|[.,]\d+)(?P<behind>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?[)\s]*"
    r"(?P<last>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?"
)
_IDS = re.compile(
    r"(^|[_\W])(ids?|codes?|tags?|items?|lists?|keys?|zip|post(al)?code|phone|tel|telephone|mobile"
    r"|fax|version|isbn|iban|members|indices)([_\W]|$)",
    re.IGNORECASE,
)
_LONG_ID = 11  # characters with separators; numbers of one such length are ids


def find_units(texts: Sequence[str]) -> list[str]:
    """Return the currencies or % in texts; [""] for numbers without one, [] for other texts."""
    found: dict[str, int] = {}
    for text in texts:
        match = _NUMBER.fullmatch(text) if len(text) <= 60 else None
        if match is None:
            continue
        signs = [sign for sign in match.groupdict().values() if sign]
        unit = signs[0] if signs else ""
        is_symbol = len(unit) == 1 and unicodedata.category(unit) == "Sc"
        if len(signs) <= 1 and (unit in ("", "%", *_CURRENCIES) or is_symbol):
            found[unit] = found.get(unit, 0) + 1
    if sum(found.values()) < 0.5 * len(texts) or not found:
        return []
    return [unit for unit in found if unit] or [""]


def readings_of(unit: str) -> list[Reading]:
    """Return a reading for each possible format of numbers with a unit, plainest first."""
    return [
        Reading(NumberFormat(unit=unit, thousands=thousands, decimal=decimal))
        for decimal in (".", ",")
        for thousands in ("", ",", ".", " ", "'")
        if thousands != decimal
    ]


def select_formats(name: str, readings: Sequence[Reading]) -> list[Reading]:
    """Return the formats that fit all cells except missing-value words, one per decimal mark.

    Ids may look like grouped numbers: a column that is named like an id, or whose texts all have
    the same length, as phone numbers do, gets no format.
    """
    found: dict[str, Reading] = {}
    for reading in readings:
        form = reading.form
        if form is None or isinstance(form, str) or not reading.values:
            continue
        alike = reading.lengths is not None and reading.lengths[0] == reading.lengths[1] >= _LONG_ID
        are_ids = not form.unit and (alike or _IDS.search(name) is not None)
        if not are_ids and missing_words(reading.words, reading.values) is not None:
            found.setdefault(form.decimal, reading)
    return list(found.values())


def give_same_numbers(readings: Sequence[Reading]) -> bool:
    """Return whether every reading gives the same numbers, which must be integers."""
    counts = [reading.counts for reading in readings]
    return (
        all(c is not None and c.whole == c.present for c in counts)
        and len({c.whole for c in counts if c is not None}) == 1
    )
