"""How to repeat the run: commands, versions, configuration and what changed in it."""

from __future__ import annotations

import difflib
import json

from pipeline.page.elements import Block, Cell, Code, Column, Group, Row, Section, Table, Text
from pipeline.page.inputs import RunInputs
from pipeline.report.run_record import CONFIG, RunRecord


def section_of(run: RunInputs) -> Section:
    """Return the section."""
    made_by = run.summary.get("made_by") or {}
    blocks: list[Block] = []
    commands = [f"python -m pipeline run --config {run.record.folder / CONFIG}"]
    if run.summary["pushed_model"]:
        commands.append(
            f"python -m pipeline predict --model {run.summary['pushed_model']} "
            f"--data {run.config.data.path}"
        )
    blocks.append(Code("Commands", "\n".join(commands)))
    if made_by:
        rows = [Row([Cell(name), Cell(str(value))]) for name, value in made_by.items()]
        blocks.append(Table("Made by", [Column("what"), Column("version")], rows))
    blocks.append(_changes(run.record, run.previous))
    settings = json.dumps(run.record.settings, indent=1, ensure_ascii=False)
    blocks.append(Group("Configuration", [Code(CONFIG, settings)]))
    return Section("reproduce", "Reproduce", blocks)


def _changes(record: RunRecord, previous: RunRecord | None) -> Block:
    if previous is None:
        return Text("There is no earlier run to compare the configuration with.", "quiet")
    before, after = (
        json.dumps(each.settings, indent=1, ensure_ascii=False).splitlines()
        for each in (previous, record)
    )
    lines = list(difflib.unified_diff(before, after, previous.name, record.name, lineterm="", n=2))
    if not lines:
        return Text(f"The configuration is that of the run before, {previous.name}.", "quiet")
    return Code(f"Configuration: changed since {previous.name}", "\n".join(lines), True)
