"""Print the columns that `init` and `features suggest` leave out, with reasons, as a table."""

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
    """A column that does not become a feature.

    Attributes:
        column: Name of the column.
        reason: The reason with the numbers that decided; a phrase without a final period.
    """

    column: str
    reason: str


def show_left_out(columns: Sequence[LeftOut], stream: TextIO) -> None:
    """Print the table; nothing if no column is left out.

    Args:
        columns: The columns in the order of the data.
        stream: The output. It gets control codes (color, bold) only if it is a terminal.
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
    """Return a user's text for rich, which is not interpreted as markup or an emoji name."""
    return Text(plain_line(text))
