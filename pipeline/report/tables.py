"""Tables of a run, which the terminal and the page show."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rich.console import Console
from rich.table import Table as _RichTable
from rich.text import Text

State: TypeAlias = Literal["", "good", "bad", "warning", "quiet"]
"""How a value is marked; a mark is never the only sign, the text says the same."""

_STYLES = {"good": "green", "bad": "red", "warning": "yellow", "quiet": "dim"}


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
    """Print a table; on a narrow console its cells are folded, never cut."""
    rich = _RichTable(box=None, header_style="bold", pad_edge=False)
    for column in table.columns:
        # Names and values are the user's: brackets in them are not markup.
        justify = "right" if column.is_number else "left"
        rich.add_column(Text(column.name), justify=justify, overflow="fold")
    for row in table.rows:
        rich.add_row(*(Text(cell.text, style=_STYLES.get(cell.state, "")) for cell in row.cells))
    console.print(rich)
