"""No cell of a table is cut, whatever the width of the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipeline.report.tables import Cell, Column, Row, Table, print_table

WIDTHS = (40, 200)


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def metrics(slice_name: str = "payment=Cash") -> Table:
    rows = [
        Row([Cell(name), *(Cell(f"{place}{row}.1234") for place in range(9))])
        for row, name in enumerate(["all rows", slice_name])
    ]
    rows.append(Row([Cell("needed", state="quiet"), *[Cell("")] * 8, Cell("≥ 0.5")]))
    names = [Column(f"metric_number_{place}", True) for place in range(9)]
    return Table("", [Column("slice"), *names], rows)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["支払い方法", "a_column_of_" + 20 * "x"])
def test_every_cell_is_printed_whole_and_in_width(width: int, name: str) -> None:
    text = printed(metrics(slice_name=name), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    for place in range(9):
        assert text.count(f"metric_number_{place}") == 1
        assert f"{place}0.1234" in text
        assert f"{place}1.1234" in text
    assert text.count("needed") == text.count("≥ 0.5") == 1  # not in a table where it says nothing
    tables = text.split("\n\n")
    assert len(tables) == 1 if width == 200 else len(tables) > 2
    assert all("all rows" in table for table in tables)


def test_names_and_values_wider_than_the_terminal_are_folded() -> None:
    text = printed(metrics(slice_name="x" * 100), 50)
    assert max(map(len, text.splitlines())) <= 50
    assert re.sub(r"[^x]", "", text.split("\n\n")[0]).count("x") == 100
    table = Table("", [Column("name"), Column("value")], [Row([Cell("a"), Cell("y" * 90)])])
    assert printed(table, 30).count("y") == 90
