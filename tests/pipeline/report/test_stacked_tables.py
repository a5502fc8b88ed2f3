"""No cell of a table is cut, whatever the width of the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.report.stacked_tables import print_table


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def metrics(columns: int = 9, slice_name: str = "payment=Cash") -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("slice", no_wrap=True)
    for place in range(columns):
        table.add_column(f"metric_number_{place}", justify="right", no_wrap=True)
    for row, name in enumerate(["all rows", slice_name]):
        table.add_row(name, *(f"{place}{row}.1234" for place in range(columns)))
    table.add_row(Text("needed", style="dim"), *[""] * (columns - 1), "≥ 0.5")
    return table


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 400])
def test_every_cell_is_printed_whole_and_in_width(width):
    text = printed(metrics(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for place in range(9):
        assert text.count(f"metric_number_{place}") == 1
        for row in range(2):
            assert f"{place}{row}.1234" in text
    assert text.count("needed") == text.count("≥ 0.5") == 1  # not in a table where it says nothing


def test_each_table_names_its_rows():
    tables = printed(metrics(), 60).split("\n\n")
    assert len(tables) > 2
    assert all("all rows" in table and "payment=Cash" in table for table in tables)


def test_a_table_that_fits_is_printed_as_it_is():
    wide = Console(file=io.StringIO(), width=200)
    wide.print(metrics())
    assert printed(metrics(), 200) == wide.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_names_and_values_wider_than_the_terminal_are_folded():
    text = printed(metrics(slice_name="x" * 100), 50)
    assert max(map(len, text.splitlines())) <= 50
    assert re.sub(r"[^x]", "", text.split("\n\n")[0]).count("x") == 100
    table = Table("name", "value", box=None, pad_edge=False)
    table.add_row("a", "y" * 90)
    assert printed(table, 30).count("y") == 90
