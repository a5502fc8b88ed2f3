"""Writes the pages: of a run, and of all runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pipeline.page import answers, data, evaluation, features, training
from pipeline.page.elements import Block, Code, Group, PageRun, Section, Text, Tile
from pipeline.page.render import render
from pipeline.report.result import RunResult
from pipeline.report.run_list import changes, runs_table
from pipeline.report.run_record import CONFIG, INDEX, RunRecord, records_of
from pipeline.report.summary import nodes_table
from pipeline.report.tables import Cell, Column, Row, Table
from shared_core.atomic_files import atomic_write

LARGEST_BYTES = 5 * 2**20
"""Size that a page should not exceed."""


def run_section(run: PageRun) -> Section:
    """Return how to repeat the run, what changed since the one before, and its nodes."""
    made_by = run.summary.get("made_by") or {}
    commands = [f"python -m pipeline run --config {run.record.folder / CONFIG}"]
    if model := run.summary["pushed_model"]:
        rows = run.result.config.data.path
        commands.append(f"python -m pipeline predict --model {model} --data {rows}")
    settings = json.dumps(run.record.settings, indent=1, ensure_ascii=False)
    blocks: list[Block] = [Code("Commands", "\n".join(commands)), _changes(run)]
    blocks.append(Group("Configuration", [Code(CONFIG, settings)]))
    if made_by:
        versions = [Row([Cell(name), Cell(str(value))]) for name, value in made_by.items()]
        table = Table("Made by", [Column("what"), Column("version")], versions)
        blocks.append(Group("Versions", [table]))
    nodes = nodes_table(run.result, run.summary["nodes"], run.record.folder)
    return Section("run", "Run", [*blocks, nodes])


def _changes(run: PageRun) -> Block:
    if run.previous is None:
        return Text("There is no earlier run to compare with.", "quiet")
    rows = [Row([*map(Cell, each)]) for each in changes(run.previous, run.record)]
    if rows:
        headings = ("changed", run.previous.name, run.record.name)
        return Table("Changed since the run before", [*map(Column, headings)], rows)
    text = f"Settings, rows and versions are those of the run before, {run.previous.name}."
    return Text(text, "quiet")


SECTIONS: tuple[tuple[str, str, Callable[[PageRun], Section]], ...] = (
    ("verdict", "Is it good?", answers.is_it_good),
    ("why", "Why?", answers.why),
    ("trust", "Can I trust it?", answers.can_i_trust_it),
    ("evaluation", "Evaluation", evaluation.section_of),
    ("features", "Features", features.section_of),
    ("data", "Data", data.section_of),
    ("training", "Training", training.section_of),
    ("run", "Run", run_section),
)
"""Anchor, heading and function of each section, in the order of the page."""


def write_page(record: RunRecord, result: RunResult | None = None) -> Path:
    """Write `report.html` into the folder of a run's record, atomically, and return the file.

    A section that cannot be made says so on the page and in the log; the others are complete.
    """
    run = page_run(record, result)
    started = datetime.fromisoformat(record.summary["run"]["started"])
    seconds = sum(node["seconds"] for node in record.summary["nodes"])
    text = render(
        title=run.result.config.name,
        subtitle=f"Run of {started:%A, %d %B %Y, %H:%M} ({seconds:,.0f} s in its nodes)",
        badge=Tile("verdict", record.shown_result, state=record.state),
        sections=[_section(run, *each) for each in SECTIONS],
        links={"All runs": f"../../{INDEX}"},
    )
    return _write(record.page, text)


def page_run(record: RunRecord, result: RunResult | None = None) -> PageRun:
    """Return a run and those that it is compared with; `result` is loaded where it is None."""
    before = [each for each in records_of(record.output_folder) if each.name < record.name]
    return PageRun(
        record=record,
        result=result or RunResult.load(record),
        previous=before[-1] if before else None,
        blessed=next((each for each in reversed(before) if each.result == "blessed"), None),
    )


def _section(
    run: PageRun, anchor: str, title: str, section_of: Callable[[PageRun], Section]
) -> Section:
    try:
        return section_of(run)
    except Exception as error:  # damaged artifacts: the other sections are still of use
        logging.getLogger("absl").exception("The section %s of the page failed.", title)
        text = f"This section cannot be made: {type(error).__name__}: {error}"
        return Section(anchor, title, [Text(text, "warning")])


def write_index(output_folder: str | Path) -> Path:
    """Write `index.html`, a table of all runs, into an output folder and return the file."""
    folder = Path(output_folder)
    records = records_of(folder)
    latest, table = records[-1], runs_table(records)
    rows = []
    for record, row in zip(records, table.rows, strict=True):
        error = record.summary["run"].get("error")
        where = f"{error['node']}: " if error and error["node"] else ""
        details = [Text(f"{where}{error['message']}", "bad")] if error else []
        rows.append(replace(row, details=details))
    table = replace(table, caption=f"{table.caption}, the latest first", rows=rows[::-1])
    text = render(
        title=latest.config.name,
        subtitle=f"{len(records):,} {'run' if len(records) == 1 else 'runs'}",
        badge=Tile("latest", latest.shown_result, state=latest.state),
        sections=[Section("runs", "Runs", [table])],
        links={"Latest run": latest.page.relative_to(folder).as_posix()},
    )
    return _write(folder / INDEX, text)


def _write(file: Path, text: str) -> Path:
    with atomic_write(file) as stream:
        stream.write(text)
    return file
