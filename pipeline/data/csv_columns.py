"""How `init` reads CSV columns that are neither plain numbers nor plain text, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.common.number_text import is_number
from pipeline.data.csv_readings import Reading, sample_texts, try_readings
from pipeline.data.csv_units import find_units, give_same_numbers, readings_of, select_formats
from pipeline.data.csv_words import missing_words

if TYPE_CHECKING:
    from components.arrow_example_gen.csv_table import CsvTable
    from components.arrow_example_gen.csv_types import CellCounts, Counts
    from components.arrow_example_gen.number_format import NumberFormat

_MOST = 0.5  # minimum share of numbers or dates for a reason why a column stays text
_DATES = 5  # minimum number of dates in a column of dates


@dataclass
class CsvFindings:
    """Options for such columns, and reasons.

    Attributes:
        missing_in: Column -> words that mean a missing value.
        formatted: Column -> format of its numbers.
        reasons: A sentence for each option, and for each column with numbers that stays text.
    """

    missing_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    formatted: dict[str, NumberFormat] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


@dataclass
class _Column:
    """A column, its first text that is not a plain number, and its readings."""

    name: str
    shown: str
    counts: CellCounts
    units: list[str]
    plain: Reading
    dates: Reading
    forms: list[Reading]

    @property
    def readings(self) -> list[Reading]:
        return [self.plain, self.dates, *self.forms]


def examine_columns(table: CsvTable, counts: Counts, *, skip: Collection[str]) -> CsvFindings:
    """Find words for missing values and numbers in human-readable formats, in all cells.

    Args:
        table: The files.
        counts: Counts of all their cells.
        skip: Columns that are known to be texts.
    """
    from components.arrow_example_gen.csv_types import decimal_of

    delimiter = table.headers[table.files[0]].delimiter
    others = {name: cells for name, cells in counts.items() if name not in skip}
    decimal = decimal_of(others, table.options, delimiter)
    odd = [name for name, cells in others.items() if not _is_plain(cells, decimal)]
    doubtful = [
        name
        for name, cells in others.items()
        if name not in odd and (cells.points or cells.comma[1]) and delimiter != ","
    ]
    if not odd:
        return CsvFindings()
    samples = sample_texts(table, [*odd, *doubtful])
    columns = []
    for name, texts in samples.items():
        units = find_units(texts)
        forms = readings_of(units[0]) if len(units) == 1 else []
        readings = Reading(decimal), Reading(None)
        shown = next((text for text in texts if not is_number(text)), "")
        columns.append(_Column(name, shown, others[name], units, *readings, forms))
    try_readings(table, {column.name: column.readings for column in columns})
    findings = CsvFindings()
    marks = _known_marks(columns, others, doubtful, decimal)
    for column in columns:
        _decide(column, findings, delimiter, marks, doubtful=column.name in doubtful)
    return findings


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
        forms = select_formats(column.name, column.forms)
        if len(forms) == 1 and column.name not in doubtful:
            (form,) = forms
            if form.counts is not None and form.counts.whole < form.counts.present:
                marks.add(_format(form).decimal)
    for name, cells in counts.items():
        if name not in doubtful and _is_plain(cells, decimal):
            marks |= {mark for mark, seen in ((".", cells.points), (",", cells.commas)) if seen}
    return marks


def _decide(
    column: _Column, findings: CsvFindings, delimiter: str, marks: set[str], *, doubtful: bool
) -> None:
    name = column.name
    if doubtful:  # 1.234 in a file with decimal commas
        forms = [
            form for form in select_formats(name, column.forms) if _format(form).decimal == ","
        ]
        if forms and marks == {","}:
            _use_reading(column, forms[0], findings)
        return None
    if missing_words(column.plain.words, column.plain.values):
        return _use_reading(column, column.plain, findings)
    dates = column.dates
    if dates.values >= _DATES and missing_words(dates.words, dates.values):
        return _use_reading(column, dates, findings)
    forms = select_formats(name, column.forms)
    if len(forms) == 2 and not give_same_numbers(forms):
        mark = _choose_mark(forms, delimiter, marks)
        forms = [form for form in forms if _format(form).decimal == mark]
        if not forms:
            findings.reasons.append(
                f"text: {name!r} has numbers like {column.shown}, whose mark may be decimal or "
                "separate thousands: it stays text. Set data.csv.formatted to read it as numbers."
            )
            return None
    if forms:
        return _use_reading(column, forms[0], findings)
    _explain_text(column, findings)
    return None


def _choose_mark(forms: Sequence[Reading], delimiter: str, marks: set[str]) -> str:
    """Return the decimal mark of numbers like 1.234 or 1,234; "" if it is ambiguous.

    Amounts of money rarely have three decimals, so a point in other columns is not evidence for
    them.
    """
    form = _format(next(form for form in forms if _format(form).decimal == "."))
    if marks == {","}:
        return ","
    if form.thousands == ",":
        return "." if delimiter == "," or marks == {"."} else ""
    return "." if marks <= {"."} and (form.unit == "%" or (marks and not form.unit)) else ""


def _format(reading: Reading) -> NumberFormat:
    from components.arrow_example_gen.number_format import NumberFormat

    assert isinstance(reading.form, NumberFormat)
    return reading.form


def _use_reading(column: _Column, reading: Reading, findings: CsvFindings) -> None:
    """Add the options and reasons of a column with this reading."""
    name = column.name
    if isinstance(reading.form, str) or reading.form is None:
        kind = "dates" if reading.form is None else "numbers"
    else:
        kind = "numbers"
        findings.formatted[name] = reading.form
        kept = " (23.4% is 23.4)" if reading.form.unit == "%" else ""
        findings.reasons.append(
            f"formatted: {name!r} writes numbers as {column.shown or reading.form.example}: they "
            f"are read as numbers{kept}."
        )
    if reading.words:
        findings.missing_in[name] = tuple(reading.words)
        words = ", ".join(f"{word!r} ({cells:,})" for word, cells in reading.words.most_common())
        findings.reasons.append(
            f"missing_in: {words} among the {reading.values:,} {kind} of {name!r}: no value."
        )


def _explain_text(column: _Column, findings: CsvFindings) -> None:
    """Add the reason why a column of mostly numbers or dates stays text."""
    if len(column.units) > 1:
        units = " and ".join(sorted(column.units)[:3])
        findings.reasons.append(
            f"text: {column.name!r} has numbers in several units ({units}): it stays text."
        )
        return
    best = max(column.readings, key=lambda reading: reading.values)
    if best.values < _MOST * column.counts.present or not best.words:
        return
    kind = "dates" if best.form is None else "numbers"
    word, cells = best.words.most_common(1)[0]
    shown = repr(word if len(word) <= 40 else word[:39] + "\u2026")
    if best.has_many_words:
        shown, cells = f"{shown} and others", best.seen - best.values
    findings.reasons.append(
        f"text: {column.name!r} has texts among its {kind}, {shown} in {cells:,} of "
        f"{column.counts.present:,} cells: it stays text. If they mean a missing value, list them "
        "in data.csv.missing_in, or empty them and run init again."
    )
