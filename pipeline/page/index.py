"""`index.html`: the runs of an output folder, sortable, with their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.page.elements import (
    Block,
    Cell,
    Column,
    Items,
    Row,
    Section,
    Table,
    Text,
    Tile,
    number_cell,
)
from pipeline.page.render import render
from pipeline.page.states import state_of
from pipeline.report.run_changes import changes
from pipeline.report.run_list import changes_text, metric_names, metrics_of, seconds_of
from pipeline.report.run_record import INDEX, RunRecord, records_of
from shared_core.atomic_files import atomic_write


def write_index(output_folder: str | Path) -> Path:
    """Write `index.html` into an output folder atomically and return the file."""
    folder = Path(output_folder)
    records = records_of(folder)
    latest = records[-1]
    sections = [Section("runs", "Runs", [_table(records)])]
    text = render(
        title=latest.config.name,
        subtitle=f"{len(records):,} {'run' if len(records) == 1 else 'runs'}",
        badge=Tile("latest", latest.shown_result, state=state_of(latest)),
        sections=sections,
        links={"Latest run": latest.page.relative_to(folder).as_posix()},
    )
    file = folder / INDEX
    with atomic_write(file) as stream:
        stream.write(text)
    return file


def _table(records: Sequence[RunRecord]) -> Table:
    names = metric_names(records)
    columns = [
        Column("run", help="local time of the start; opens the page of the run"),
        Column("result"),
        Column("seconds", is_number=True, help="wall time"),
        Column("rows", is_number=True, help="rows of all splits"),
        *(Column(name, is_number=True) for name in names),
        Column("changed", help="since the run before"),
    ]
    pairs = zip([None, *records], records, strict=False)
    rows = [_row(before, record, names) for before, record in pairs]
    return Table("Runs of this folder, the latest first", columns, rows[::-1], filter="runs")


def _row(before: RunRecord | None, record: RunRecord, names: Sequence[str]) -> Row:
    values = metrics_of(record)
    rows = sum(record.summary["rows"].values())
    seconds = seconds_of(record)
    cells = [
        Cell(record.name, link=record.page.relative_to(record.output_folder).as_posix()),
        Cell(record.shown_result, state=state_of(record)),
        number_cell(seconds, f"{seconds:,.0f}"),
        number_cell(rows, f"{rows:,}") if rows else Cell(""),
        *(number_cell(values[name]) if name in values else Cell("") for name in names),
        Cell("" if before is None else changes_text(before, record)),
    ]
    found = [] if before is None else [each.text for each in changes(before, record)]
    error = record.summary["run"].get("error")
    details: list[Block] = []
    if error:
        where = f"{error['node']}: " if error["node"] else ""
        details.append(Text(f"{where}{error['message']}", "bad"))
    if found:
        details.append(Items(found))
    return Row(cells, details)
