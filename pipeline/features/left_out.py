"""Columns that `init` and `features suggest` leave out, each with the reason, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.common.plain_line import plain_line

WIDTH = 80
SHOWN = 50
"""Rows of the table: beyond, one row says how many more the YAML lists."""

_COLUMN_WIDTH = 30


class LeftOut(NamedTuple):
    """A column that becomes no feature.

    Attributes:
        column: Its name.
        reason: Why, with the numbers that decided; a phrase without a final stop.
    """

    column: str
    reason: str


def show_left_out(columns: Sequence[LeftOut], stream: TextIO) -> None:
    """Print the table; nothing if no column is left out.

    Args:
        columns: In the order of the data.
        stream: Where to. Control codes (colour, bold) only if it is a terminal.
    """
    if not columns:
        return
    console = Console(file=stream)
    if not console.is_terminal or console.width > WIDTH:
        console = Console(file=stream, width=WIDTH)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("left out", overflow="fold", max_width=_COLUMN_WIDTH)
    table.add_column("reason", overflow="fold")
    shown = columns if len(columns) <= SHOWN else columns[: SHOWN - 1]
    for column, reason in shown:
        table.add_row(_cell(column), _cell(reason))
    if len(shown) < len(columns):
        table.add_row("...", f"{len(columns) - len(shown):,} more: the YAML lists them")
    console.print(table)


def _cell(text: str) -> Text:
    """Return a user's text for rich: not taken for markup or for the name of an emoji."""
    return Text(plain_line(text))
