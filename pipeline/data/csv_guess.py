"""Detect the dialect of CSV files from all of their cells, for `data.csv` in the YAML of `init`.

`run` does not guess options whose errors would be silent: an encoding, or that a column of numbers
contains codes. `init` writes its guess to the YAML, where the user can see it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from components import CsvOptions
from components.arrow_example_gen import csv_types
from components.arrow_example_gen.csv_header import InvalidEncoding
from components.arrow_example_gen.csv_table import CsvTable
from components.arrow_example_gen.csv_types import CellCounts, Counts
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.data.tables import all_blocks, open_csv
from shared_core.run_warning import RunWarning

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
_DATE = (
    r"^\s*(\d{1,4}[-./ ]\s?\w{1,9}[-./ ,]\s?\d{1,4}([T ,].*)?|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}.*"
    r"|\d{4}-\d{2}-\d{2}.*)\s*$"
)
_ZERO_DATE = r"^\s*0+[-./]0+[-./]0+([ T:.]|0)*$"
_DECIMAL_BESIDE = {",": ".", ";": ","}  # delimiter -> decimal mark that is usual beside it
_AMOUNT = re.compile(  # $1,234.50, 23.4%, 1.234,50 \u20ac
    r"[(+-]?\s?[^\w\s]?\s?[+-]?\d+([,.' \u00a0\u202f]\d{3})*([.,]\d+)?\s?[^\w\s]?\)?"
)


@dataclass
class CsvGuess:
    """Options and their reasons.

    Attributes:
        options: Options to read the file with.
        reasons: A sentence for each option that is not the default.
        doubts: A warning for each column whose numbers may have another meaning, or stay text.
    """

    options: CsvOptions
    reasons: list[str] = field(default_factory=list)
    doubts: list[RunWarning] = field(default_factory=list)

    def section(self) -> JsonObject:
        """Return the content of `data.csv`: the options that are not the default."""
        return self.options.model_dump(mode="json", exclude_defaults=True)

    def set(self, **options: Any) -> None:
        """Change options."""
        self.options = self.options.model_copy(update=options)

    def keep_text(self, *columns: str) -> None:
        """Read columns as text."""
        self.set(text=(*self.options.text, *columns))

    def doubt(self, column: str, what: str, fix: str = "") -> None:
        """Add a warning about a column."""
        self.doubts.append(RunWarning(what=f"column {column!r} {what}", fix=fix, column=column))


@dataclass
class _Reading:
    """The cells of a column that are numbers with a decimal mark, or dates.

    Attributes:
        decimal: The mark; None: dates.
        values: Number of cells that can be read this way.
        words: The other cells, with counts; incomplete if there are many.
        seen: Number of cells that were read.
    """

    decimal: str | None
    values: int = 0
    words: Counter[str] = field(default_factory=Counter)
    seen: int = 0

    @property
    def kind(self) -> str:
        return "dates" if self.decimal is None else "numbers"

    @property
    def has_many_words(self) -> bool:
        """Whether there are more distinct words than may represent missing values."""
        return len(self.words) > _FEW_WORDS

    def add(self, cells: pa.Array) -> None:
        """Count more cells, none of them missing."""
        if self.has_many_words and 2 * self.values < self.seen:
            return  # it is ruled out
        self.seen += len(cells)
        cells = pc.ascii_trim_whitespace(cells)
        if self.decimal is None:
            zero = pc.match_substring_regex(cells, _ZERO_DATE)
            fits = pc.and_not(pc.match_substring_regex(cells, _DATE), zero)
        else:
            fits = csv_types.are_numbers(cells, self.decimal)
        others = cells.filter(pc.invert(fits))
        self.values += len(cells) - len(others)
        if not self.has_many_words:
            for pair in pc.value_counts(others).slice(0, _FEW_WORDS + 1).to_pylist():
                self.words[pair["values"]] += pair["counts"]

    def has_missing_words(self) -> bool:
        """Return whether there are other cells, and all say that there is no value.

        Words such as `n/a` may fill up to half of the cells. Other words together may fill a tenth,
        if they have no digits (as codes have) or are censored numbers such as `<5`.
        """
        if not 0 < sum(self.words.values()) <= self.values or self.has_many_words:
            return False
        others = {
            word: cells
            for word, cells in self.words.items()
            if word.lower() not in _MISSING and not _ZERO_DATE_WORD.fullmatch(word)
        }
        if sum(others.values()) > _RARE * (self.values + sum(self.words.values())):
            return False
        for word in others:
            is_code = any(map(str.isdigit, word)) and _CENSORED.fullmatch(word) is None
            unlikely = self.values < _ENOUGH or len(word) > _LONGEST_WORD or is_code
            if unlikely and word.lower() not in _OFTEN_MISSING:
                return False
        return True


def _examine_columns(guess: CsvGuess, table: CsvTable, counts: Counts) -> None:
    """Find words for missing values among numbers and dates, in all cells."""
    others = {name: cells for name, cells in counts.items() if name not in guess.options.text}
    decimal = csv_types.decimal_of(others, table.options, table.delimiter)
    odd = [name for name, cells in others.items() if not _is_plain(cells, decimal)]
    _doubt_thousands(guess, table, {n: c for n, c in others.items() if n not in odd}, decimal)
    ways = {name: (_Reading(decimal), _Reading(None)) for name in odd}
    for block in all_blocks(table) if ways else ():
        for name, readings in ways.items():
            cells = block.column(name).drop_null()
            for reading in readings:
                reading.add(cells)
    for name, (numbers, dates) in ways.items():
        if numbers.has_missing_words():
            _use_words(name, numbers, guess)
        elif dates.values >= 5 and dates.has_missing_words():
            _use_words(name, dates, guess)
        else:
            _explain_text(name, numbers, dates, guess)


def _is_plain(cells: CellCounts, decimal: str) -> bool:
    """Return whether all values of a column are plain numbers; True without values."""
    other = (cells.commas or cells.comma[0]) if decimal == "." else (cells.points or cells.comma[1])
    return not cells.texts and not other


def _doubt_thousands(guess: CsvGuess, table: CsvTable, plain: Counts, decimal: str) -> None:
    """Find numbers like 1.234 or 1,234, whose mark may separate thousands.

    Who writes 948 beside 2.520 separates thousands, because decimals would not all have three
    digits. Such a column stays text, and so does one whose mark is not the usual decimal mark
    beside the file's delimiter. Others are read as decimals, with a warning unless another column
    shows that the mark is decimal.
    """
    first = next(all_blocks(table), None)
    if first is None:
        return
    mark = re.escape(decimal)
    group = rf"^\s*[+-]?([0-9]{{1,3}}|[1-9][0-9]{{0,2}}({mark}[0-9]{{3}})+)\s*$"
    doubtful = {}
    for name in plain:
        cells = first.column(name).drop_null()
        marked = cells.filter(pc.match_substring(cells, decimal))
        if len(marked) and pc.all(pc.match_substring_regex(cells, group)).as_py():
            doubtful[name] = marked[0].as_py().strip(), len(marked) < len(cells)
    is_known = any(c.points or c.commas for name, c in plain.items() if name not in doubtful)
    is_usual = decimal == _DECIMAL_BESIDE.get(table.delimiter)
    for name, (shown, has_thousands) in doubtful.items():
        if has_thousands or not (is_known or is_usual):
            guess.keep_text(name)
            guess.doubt(
                name,
                f"has numbers like {shown}, whose mark may be decimal or separate thousands: it "
                "stays text",
                "If the mark separates thousands, write the numbers without it and run init again; "
                "if it is decimal, remove the column from data.csv.text",
            )
        elif not is_known:
            guess.doubt(
                name,
                f"has numbers like {shown}, which is read as {shown.replace(',', '.')}",
                "If its mark separates thousands, write its numbers without it",
            )


def _use_words(name: str, reading: _Reading, guess: CsvGuess) -> None:
    """Read the words of a column of numbers or dates as missing values."""
    guess.set(missing_in={**guess.options.missing_in, name: tuple(reading.words)})
    words = ", ".join(f"{word!r} ({cells:,})" for word, cells in reading.words.most_common())
    guess.reasons.append(
        f"missing_in: {words} among the {reading.values:,} {reading.kind} of {name!r}: no value."
    )


def _explain_text(name: str, numbers: _Reading, dates: _Reading, guess: CsvGuess) -> None:
    """Add the reason why a column of mostly numbers or dates stays text."""
    words = numbers.words
    amounts = [word for word in words if _AMOUNT.fullmatch(word)]
    if sum(words[word] for word in amounts) > (1 - _RARE) * sum(words.values()):
        guess.doubt(
            name,
            f"has numbers like {amounts[0]}: it stays text",
            "To use them as numbers, write them without currency, % and separators of thousands, "
            "and with the decimal mark of data.csv.decimal",
        )
        return
    best = max(numbers, dates, key=lambda reading: reading.values)
    if best.values < 0.5 * best.seen or not best.words:
        return
    word, cells = best.words.most_common(1)[0]
    shown = repr(word if len(word) <= 40 else word[:39] + "\u2026")
    if best.has_many_words:
        shown, cells = f"{shown} and others", best.seen - best.values
    guess.doubt(
        name,
        f"has texts among its {best.kind}, {shown} in {cells:,} of {best.seen:,} cells: it "
        "stays text",
        "If they mean a missing value, list them in data.csv.missing_in, or empty them and run "
        "init again",
    )


def guess_csv(found: Sequence[Path], header: bool | None = None) -> CsvGuess:
    """Detect the options of complete files; `header` is that of `CsvOptions`.

    Raises:
        ConfigError: A file is not CSV in any encoding that is tried, or its first line looks like
            data.
    """
    guess = CsvGuess(CsvOptions(header=header))
    for encoding in (None, "cp1252", "latin-1"):
        guess.set(encoding=encoding)
        try:
            table = open_csv(found, guess.options)
            counts = _counted(table)
            break
        except ConfigError as error:
            if not isinstance(error.__cause__, InvalidEncoding) or encoding == "latin-1":
                raise
    reasons = guess.reasons
    if encoding is not None:
        reasons.append(f"encoding: some bytes are not UTF-8; {encoding} can read all.")
    if header is False:
        reasons.append(
            f"header: the first line is a row; columns are column_1 to column_{len(table.columns)}."
        )
    if table.dropped:
        reasons.append(f"{table.dropped.removeprefix(f'{found[0]}: ')}.")
    # Integers, some with a leading 0 (zip codes), and words.
    codes = [
        name
        for name, cells in counts.items()
        if cells.zero_led > 0 and cells.whole + cells.texts == cells.present < 2 * cells.whole
    ]
    if codes:
        guess.keep_text(*codes)
        reasons.append(f"text: numbers that begin with 0 are codes: {', '.join(codes)}.")
    before = guess.options
    _examine_columns(guess, table, counts)
    if guess.options is not before:
        counts = _counted(open_csv(found, guess.options))
    while True:
        try:
            csv_types.decide(counts, guess.options, table.delimiter)
            return guess
        except csv_types.MixedColumn as mixed:
            guess.keep_text(mixed.column)
            if mixed.column not in [each.column for each in guess.doubts]:
                what = f"has texts among its numbers, {mixed.value!r} for one: it stays text"
                guess.doubt(mixed.column, what)


def _counted(table: CsvTable) -> Counts:
    return table.together([table.together([]), *map(table.count, all_blocks(table))])
