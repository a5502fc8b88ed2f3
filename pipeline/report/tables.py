"""Tables of a run, which the terminal and the page show.

On a terminal of any width no cell is cut: columns that do not fit go to another table below.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column as _RichColumn
from rich.table import Table as _RichTable
from rich.text import Text

State: TypeAlias = Literal["", "good", "bad", "warning", "quiet"]
"""How a value is marked; a mark is never the only sign, the text says the same."""

_STYLES = {"good": "green", "bad": "red", "warning": "yellow", "quiet": "dim"}
_GAP = 2  # spaces between columns of a table without a box


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers are aligned to the right, `help` is a sentence about it."""

    name: str
    is_number: bool = False
    help: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What is shown.
        value: What the column is sorted by; None: `text`, or last where the column is of numbers.
        state: How it is marked.
        note: A sentence about the value, shown on hover and read by screen readers.
        link: A path relative to the page, or an address.
    """

    text: str
    value: float | None = None
    state: State = ""
    note: str = ""
    link: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table; on a page, a button opens the blocks `details` below it."""

    cells: Sequence[Cell]
    details: Sequence[Any] = ()


@dataclass(frozen=True)
class Table:
    """A table that sorts by any column; `filter` names what is typed to filter it ("": nothing)."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    filter: str = ""


def number_cell(value: float | None, text: str | None = None, *, state: State = "") -> Cell:
    """Return a cell with a number (four significant digits, or `text`), or `undefined`."""
    if value is None or not math.isfinite(value):
        return Cell("undefined", state="quiet")
    return Cell(f"{value:,.4g}" if text is None else text, value=value, state=state)


def metric_cell(value: float | None) -> Cell:
    """Return a cell with a metric in four decimals, or `undefined`."""
    return number_cell(value, None if value is None else f"{value:.4f}")


def short(path: Path) -> str:
    """Return the path relative to the current folder; unchanged if it is outside it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def print_table(console: Console, table: Table) -> None:
    """Print a table, split into several tables if it is wider than the console.

    The first column names the rows. Each part repeats that column, and omits rows that have no
    value in the part.
    """
    rich = _RichTable(box=None, header_style="bold", pad_edge=False)
    for column in table.columns:
        # Names and values are the user's: brackets in them are not markup.
        rich.add_column(Text(column.name), justify="right" if column.is_number else "left")
    for row in table.rows:
        rich.add_row(*(Text(cell.text, style=_STYLES.get(cell.state, "")) for cell in row.cells))
    for number, part in enumerate(_split_columns(console, rich)):
        if number:
            console.print()
        console.print(part)


def _split_columns(console: Console, table: _RichTable) -> list[_RichTable]:
    """Return a table, or its parts; too wide cells are folded, never cut."""
    widths = [_width(console, column) for column in table.columns]
    if sum(widths) + _GAP * (len(widths) - 1) <= console.width:
        return [table]
    name_width = min(widths[0], console.width // 2)
    groups: list[list[int]] = [[]]
    used = name_width
    for place, width in enumerate(widths[1:], 1):
        if groups[-1] and used + _GAP + width > console.width:
            groups.append([])
            used = name_width
        groups[-1].append(place)
        used += _GAP + width
    return [_part(table, group, name_width) for group in groups]


def _width(console: Console, column: _RichColumn) -> int:
    cells = [column.header, *column.cells]
    return max(Measurement.get(console, console.options, cell).maximum for cell in cells)


def _part(table: _RichTable, places: Sequence[int], name_width: int) -> _RichTable:
    part = _RichTable(box=None, header_style=table.header_style, pad_edge=False)
    names, *columns = [table.columns[place] for place in (0, *places)]
    part.add_column(names.header, justify=names.justify, overflow="fold", min_width=name_width)
    for column in columns:
        part.add_column(column.header, justify=column.justify, overflow="fold")
    for name, *cells in zip(*(column.cells for column in (names, *columns)), strict=True):
        if any(map(str, cells)):
            part.add_row(name, *cells)
    return part
