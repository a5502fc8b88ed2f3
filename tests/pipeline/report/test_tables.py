"""No cell of a table is cut, whatever the width of the terminal."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console

from pipeline.report.tables import Cell, Column, Row, Table, print_table

WIDTHS = (40, 200)


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_cells_are_folded_and_not_cut() -> None:
    rows = [Row([Cell("支払い方法" * 9), *(Cell(f"{place}0.1234") for place in range(4))])]
    columns = [Column("slice"), *(Column(f"metric_{place}", True) for place in range(4))]
    for width in WIDTHS:
        text = printed(Table("", columns, rows), width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert "…" not in text
        assert text.count("方") == 9
    assert "metric_3" in text
    assert "30.1234" in text
