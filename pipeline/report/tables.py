"""Tables that fit any terminal: columns that do not fit go to another table below; short paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_GAP = 2  # spaces between columns of a table without a box


def short(path: Path) -> str:
    """Return the path relative to the current folder; unchanged if it is outside it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def table_of(*columns: str, left: int = 1, header_style: str = "bold") -> Table:
    """Return a table without a box; the columns after the first `left` ones hold numbers."""
    table = Table(box=None, header_style=header_style, pad_edge=False)
    for place, heading in enumerate(columns):
        is_number = place >= left
        table.add_column(Text(heading), justify="right" if is_number else "left", no_wrap=is_number)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table, split into several tables if it is wider than the console.

    Args:
        console: Where to print it.
        table: A table without a box, whose first column names the rows. Each part repeats that
            column, and omits rows that have no value in the part.
    """
    for number, part in enumerate(_split_columns(console, table)):
        if number:
            console.print()
        console.print(part)


def _split_columns(console: Console, table: Table) -> list[Table]:
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


def _width(console: Console, column: Column) -> int:
    cells = [column.header, *column.cells]
    return max(Measurement.get(console, console.options, cell).maximum for cell in cells)


def _part(table: Table, places: Sequence[int], name_width: int) -> Table:
    part = Table(box=None, header_style=table.header_style, pad_edge=False)
    names, *columns = [table.columns[place] for place in (0, *places)]
    part.add_column(names.header, justify=names.justify, overflow="fold", min_width=name_width)
    for column in columns:
        part.add_column(column.header, justify=column.justify, overflow="fold")
    for name, *cells in zip(*(column.cells for column in (names, *columns)), strict=True):
        if any(_plain(cell) for cell in cells):
            part.add_row(name, *cells)
    return part


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
