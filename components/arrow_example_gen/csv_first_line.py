"""Whether the first line of a CSV file is a row of data where the columns' names are expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Literal

_CELLS = 20_000  # looked at below the first line, in whole rows, two of them at least
_MOST = 0.9  # share of numbers (or dates) that makes a column one of them
_RUN = 5  # so many whole numbers in a row, from 0 or 1, are column names and not values
_YEARS = range(1800, 2101)
_SHOWN = 60  # characters of a line in a message

_NUMBER = re.compile(
    r"[(+\-−]?\s?[$€£¥]?\s?[+\-−]?(\d{1,3}([,.'’ \u00a0\u202f]\d{3})+|\d+)?([.,]\d*)?"
    r"([eE][+-]?\d+)?\s?[%$€£¥]?\)?"
)
_DATE = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([T ,].*)?|\d{4}-\d{2}|\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?"
    r"|\d{1,2}[-./ ]\s?[A-Za-z]{3,9}[-./ ,]\s?\d{2,4}([T ,].*)?|[A-Za-z]{3,9} \d{1,2},? \d{4}.*"
)
_NO_NAMES = {"", "na", "n/a", "nan", "null", "none", "?", "-", "unknown", "missing", "inf", "-inf"}

_Kind = Literal["number", "date", "text", "none"]


def looks_like_data(first: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    """Return whether a first line is a row like those below it.

    It is one if a cell is a number or a date as the cells below it are. It is not if anything says
    that the cells are names: a text above numbers or dates, a date above numbers, years, a count
    0, 1, 2, ..., or an empty cell above an index.

    Args:
        first: the cells of the first line.
        rows: those of the lines below it.
    """
    cells = [cell.strip() for cell in first]
    kinds = [_kind(cell) for cell in cells]
    if "number" not in kinds and "date" not in kinds:
        return False
    many = max(2, _CELLS // len(cells))
    below = list(islice((row for row in rows if len(row) == len(cells)), many))
    if not below:  # there is none, or none of what was read of a wide file is whole
        places = [place for place, kind in enumerate(kinds) if kind == "number"]
        return "text" not in kinds and not _are_names(cells, [[] for _ in cells], places)
    columns = [[cell.strip() for cell in column] for column in zip(*below, strict=True)]
    typed = [_column_kind(column) for column in columns]
    if any(
        over in ("text", "date") and under in ("number", "date") and over != under
        for over, under in zip(kinds, typed, strict=True)
    ):
        return False
    if cells[0] == "" and (_counts(columns[0]) or (all(columns[0]) and _counts(cells[1:]))):
        return False  # an index as pandas writes it
    alike = [
        place
        for place, (over, under) in enumerate(zip(kinds, typed, strict=True))
        if over in ("number", "date") and over == under
    ]
    numbers = [place for place in alike if kinds[place] == "number"]
    return bool(alike) and not (numbers == alike and _are_names(cells, columns, numbers))


def shorten_line(cells: Sequence[str], delimiter: str) -> str:
    """Return a line as a message shows it."""
    line = " ".join(delimiter.join(cells).split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _kind(cell: str) -> _Kind:
    if cell.lower() in _NO_NAMES:
        return "none"
    if any(map(str.isdigit, cell)):
        if _NUMBER.fullmatch(cell):
            return "number"
        if _DATE.fullmatch(cell):
            return "date"
    return "text"


def _column_kind(column: Sequence[str]) -> _Kind:
    """Return what most cells with a value are."""
    kinds = [kind for kind in map(_kind, column) if kind != "none"]
    if not kinds:
        return "none"
    for kind in ("number", "date"):
        if kinds.count(kind) >= _MOST * len(kinds):
            return kind
    return "text"


def _are_names(cells: Sequence[str], columns: Sequence[Sequence[str]], places: list[int]) -> bool:
    """Whether numbers above numbers are names: years, or 0, 1, 2, ... as pandas numbers columns."""
    names = [cells[place] for place in places]
    if not names:
        return False
    rows = list(zip(*(columns[place] for place in places), strict=True))
    if _counts(names):
        return len(names) >= _RUN and not any(map(_counts, rows))
    if not _are_years(names):
        return False
    if len(names) >= 3:
        return not any(map(_are_years, rows))
    foreign = _YEARS if len(names) == 2 else range(1000, 10_000)
    values = [_whole(value) for row in rows for value in row]
    return not any(value is not None and value in foreign for value in values)


def _are_years(cells: Sequence[str]) -> bool:
    """Return whether cells are years in equal steps, up or down."""
    years = [_whole(cell) for cell in cells]
    if not all(year is not None and year in _YEARS for year in years):
        return False
    steps = {int(b or 0) - int(a or 0) for a, b in pairwise(years)}
    return len(steps) <= 1 and 0 not in steps


def _counts(cells: Sequence[str]) -> bool:
    """Return whether cells are 0, 1, 2, ... or 1, 2, 3, ..."""
    numbers = [_whole(cell) for cell in cells]
    if not numbers:
        return False
    return numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _whole(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 19 else None
