"""Detect the dialect of CSV files from all of their cells, for `data.csv` in the YAML of `init`.

`run` does not guess options whose errors would be silent: an encoding, or that a column of numbers
contains codes. `init` writes its guess to the YAML, where the user can see it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from components import CsvOptions
from components.arrow_example_gen import csv_types
from components.arrow_example_gen.csv_header import InvalidEncoding
from components.arrow_example_gen.csv_options import NumberFormat
from components.arrow_example_gen.csv_table import CsvTable
from components.arrow_example_gen.csv_types import CellCounts, Counts
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.number_text import is_number
from pipeline.data.csv_readings import (
    Reading,
    find_units,
    give_same_numbers,
    missing_words,
    readings_of,
    sample_texts,
    select_formats,
    try_readings,
)
from pipeline.data.tables import all_blocks, open_csv
from shared_core.run_warning import RunWarning

_DECIMAL_BESIDE = {",": ".", ";": ","}  # delimiter -> decimal mark that is usual beside it


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
class _Column:
    """A column, some of its texts, and its readings."""

    name: str
    texts: list[str]
    counts: CellCounts
    units: list[str]
    plain: Reading
    dates: Reading
    forms: list[Reading]

    @property
    def shown(self) -> str:
        """The first text with digits that is not a plain number, or else has a mark."""
        texts = [text for text in self.texts if any(map(str.isdigit, text))]
        odd = (text for text in texts if not is_number(text))
        marked = (text for text in texts if "." in text or "," in text)
        return next(odd, next(marked, ""))

    @property
    def readings(self) -> list[Reading]:
        return [self.plain, self.dates, *self.forms]

    @property
    def fitting(self) -> list[Reading]:
        """The formats that fit; two that give the same numbers are one."""
        forms = select_formats(self.name, self.forms)
        return forms[:1] if len(forms) == 2 and give_same_numbers(forms) else forms


def _examine_columns(guess: CsvGuess, table: CsvTable, counts: Counts) -> None:
    """Find words for missing values and numbers in human-readable formats, in all cells."""
    skip = guess.options.text
    others = {name: cells for name, cells in counts.items() if name not in skip}
    decimal = csv_types.decimal_of(others, table.options, table.delimiter)
    odd = [name for name, cells in others.items() if not _is_plain(cells, decimal)]
    doubtful = _may_have_thousands(table, set(others) - set(odd), decimal)
    if not odd and not doubtful:
        return
    samples = sample_texts(table, [*odd, *doubtful])
    columns = []
    for name, texts in samples.items():
        units = find_units(texts)
        forms = readings_of(units[0]) if len(units) == 1 else []
        readings = Reading(decimal), Reading(None)
        columns.append(_Column(name, texts, others[name], units, *readings, forms))
    try_readings(table, {column.name: column.readings for column in columns})
    doubtful = [c.name for c in columns if c.name in doubtful and len(c.fitting) == 2]
    marks = _known_marks(columns, others, doubtful, decimal)
    for column in columns:
        if column.name in doubtful or column.name in odd:
            _decide(column, guess, table.delimiter, marks)


def _may_have_thousands(table: CsvTable, names: set[str], decimal: str) -> list[str]:
    """Return columns of plain numbers whose mark may separate thousands, by the first block."""
    first = next(all_blocks(table), None)
    if first is None or not names:
        return []
    mark = re.escape(decimal)
    group = rf"^\s*[+-]?([0-9]{{1,3}}|[1-9][0-9]{{0,2}}({mark}[0-9]{{3}})+)\s*$"
    return [
        name
        for name, cells in zip(first.cells.schema.names, first.cells.columns, strict=True)
        if name in names
        and pc.all(pc.match_substring_regex(cells, group), min_count=0).as_py()
        and pc.any(pc.match_substring(cells, decimal)).as_py()
    ]


def _is_plain(cells: CellCounts, decimal: str) -> bool:
    """Return whether all values of a column are plain numbers; True without values."""
    other = (cells.commas or cells.comma[0]) if decimal == "." else (cells.points or cells.comma[1])
    return not cells.texts and not other


def _known_marks(
    columns: Iterable[_Column], counts: Counts, doubtful: Collection[str], decimal: str
) -> set[str]:
    """Return the decimal marks of columns that can be read in only one way."""
    marks = set()
    for column in columns:
        forms = column.fitting
        if len(forms) == 2:
            marks |= {_format(form).decimal for form in forms if form.shows_thousands}
        elif len(forms) == 1 and forms[0].counts is not None:
            form, cells = _format(forms[0]), forms[0].counts
            if cells.whole < cells.present or form.thousands in (".", ","):
                marks.add(form.decimal)
    for name, cells in counts.items():
        if name not in doubtful and _is_plain(cells, decimal):
            marks |= {mark for mark, seen in ((".", cells.points), (",", cells.commas)) if seen}
    return marks


def _decide(column: _Column, guess: CsvGuess, delimiter: str, marks: set[str]) -> None:
    words = missing_words(column.plain.words, column.plain.values)
    forms = column.fitting
    if len(forms) == 2:
        return _decide_mark(column, guess, delimiter, marks, is_plain=words is not None)
    if words:
        return _use_reading(column, column.plain, guess)
    dates = column.dates
    if dates.values >= 5 and missing_words(dates.words, dates.values):
        return _use_reading(column, dates, guess)
    if forms:
        return _use_reading(column, forms[0], guess)
    _explain_text(column, guess)
    return None


def _decide_mark(
    column: _Column, guess: CsvGuess, delimiter: str, marks: set[str], *, is_plain: bool
) -> None:
    """Decide whether a mark is decimal or separates thousands; `is_plain`: if all are numbers."""
    name, forms = column.name, column.fitting
    grouped = next(form for form in forms if _format(form).thousands)
    form = _format(grouped)
    fix = form.model_dump(include={"unit", "thousands", "decimal"}, exclude_defaults=True)
    fix = f"data.csv.formatted: {json.dumps({name: fix}, ensure_ascii=False)}"
    mark, is_usual = _choose_mark(grouped, delimiter, marks), _DECIMAL_BESIDE.get(delimiter)
    if not mark and is_plain and is_usual == form.thousands and not grouped.shows_thousands:
        mark = form.thousands
        shown = next(text for text in column.texts if mark in text)
        guess.doubt(
            name,
            f"has numbers like {shown}, which is read as {shown.replace(',', '.')}",
            f"If its mark separates thousands, set {fix}",
        )
    if mark:
        (chosen,) = (form for form in forms if _format(form).decimal == mark)
        is_decimal = is_plain and not _format(chosen).thousands
        return _use_reading(column, column.plain if is_decimal else chosen, guess)
    fix = f"If it separates thousands, set {fix}"
    if is_plain:
        guess.keep_text(name)
        fix += " instead of data.csv.text. If it is decimal, remove it from data.csv.text"
    guess.doubt(
        name,
        f"has numbers like {column.shown}, whose mark may be decimal or separate thousands: it "
        "stays text",
        fix,
    )
    return None


def _choose_mark(grouped: Reading, delimiter: str, marks: set[str]) -> str:
    """Return the decimal mark of numbers like 1.234 or 1,234; "" if nothing decides.

    Decimals are written with a fixed number of digits (948.000) or without zeros at their end
    (2.52). So 948 beside 2.520 says that the mark separates thousands, and 2520 that it does not.
    Amounts of money rarely have three decimals, so a point in other columns is not evidence for
    them.
    """
    form = _format(grouped)
    if marks == {form.decimal}:
        return form.decimal
    if form.thousands == "," and delimiter == ",":
        return "."
    if grouped.shows_thousands:
        return form.decimal if form.thousands not in marks else ""
    if marks == {form.thousands} and not form.unit:
        return form.thousands
    if form.unit == "%" and form.thousands == "." and marks <= {"."}:
        return "."
    return form.thousands if grouped.long and not form.unit else ""


def _format(reading: Reading) -> NumberFormat:
    assert isinstance(reading.form, NumberFormat)
    return reading.form


def _use_reading(column: _Column, reading: Reading, guess: CsvGuess) -> None:
    """Add the options and reasons of a column with this reading."""
    name = column.name
    if isinstance(reading.form, str) or reading.form is None:
        kind = "dates" if reading.form is None else "numbers"
    else:
        kind = "numbers"
        guess.set(formatted={**guess.options.formatted, name: reading.form})
        shown, thousands = column.shown or reading.form.example, reading.form.thousands
        kept = " (23.4% is 23.4)" if reading.form.unit == "%" else ""
        if thousands in (".", ",") and not reading.form.unit:
            kept = f" ({shown} is {shown.replace(thousands, '').replace(',', '.')})"
        guess.reasons.append(
            f"formatted: {name!r} writes numbers as {shown}: they are read as numbers{kept}."
        )
    if reading.words:
        guess.set(missing_in={**guess.options.missing_in, name: tuple(reading.words)})
        words = ", ".join(f"{word!r} ({cells:,})" for word, cells in reading.words.most_common())
        guess.reasons.append(
            f"missing_in: {words} among the {reading.values:,} {kind} of {name!r}: no value."
        )


def _explain_text(column: _Column, guess: CsvGuess) -> None:
    """Add the reason why a column of mostly numbers or dates stays text."""
    if len(column.units) > 1:
        units = " and ".join(sorted(column.units)[:3])
        guess.doubt(
            column.name,
            f"has numbers in several units ({units}): it stays text",
            "To use them as numbers, write all of them in one unit",
        )
        return
    best = max(column.readings, key=lambda reading: reading.values)
    if best.values < 0.5 * column.counts.present or not best.words:
        return
    kind = "dates" if best.form is None else "numbers"
    word, cells = best.words.most_common(1)[0]
    shown = repr(word if len(word) <= 40 else word[:39] + "\u2026")
    if best.has_many_words:
        shown, cells = f"{shown} and others", best.seen - best.values
    guess.doubt(
        column.name,
        f"has texts among its {kind}, {shown} in {cells:,} of {column.counts.present:,} cells: it "
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
    codes = [name for name, cells in counts.items() if _are_codes(cells)]
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


def _are_codes(cells: CellCounts) -> bool:
    """Return whether cells are codes: integers, some with a leading 0 (zip codes), and words."""
    return cells.zero_led > 0 and cells.whole + cells.texts == cells.present < 2 * cells.whole
