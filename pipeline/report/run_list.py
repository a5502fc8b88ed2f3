"""The runs of an output folder on the terminal, and what changed from one to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.report.progress import duration
from pipeline.report.run_record import INDEX, RunRecord, records_of
from pipeline.report.tables import Cell, Column, Row, Table, metric_cell, print_table, short

_SHOWN_CHANGES = 3


def show_runs(folder: Path, console: Console) -> None:
    """Print the runs of an output folder, the latest one last; a ConfigError without any."""
    records = records_of(folder)
    if not records:
        raise ConfigError(
            f"{folder}: holds no run. Run the pipeline first, or give the YAML or the output "
            "folder of one that has run."
        )
    print_table(console, runs_table(records))
    if (folder / INDEX).is_file():
        console.print(f"\npage of all runs   {short(folder / INDEX)}", soft_wrap=True)


def runs_table(records: Sequence[RunRecord]) -> Table:
    """Return the runs with result, time, metrics, and what changed since the run before."""
    metrics = [_metrics_of(each) for each in records]
    names = dict.fromkeys(name for each in reversed(metrics) for name in each)
    columns = [
        Column("run", help="local time of the start"),
        Column("result"),
        Column("time", True, "wall time"),
        *(Column(name, True) for name in names),
        Column("changed", help="since the run before"),
    ]
    rows = []
    for before, record, values in zip([None, *records], records, metrics, strict=False):
        run = record.summary["run"]
        started, ended = (datetime.fromisoformat(run[key]) for key in ("started", "ended"))
        seconds = (ended - started).total_seconds()
        changed = (
            [f"{n}: {old} → {new}" for n, old, new in changes(before, record)] if before else []
        )
        more = len(changed) - _SHOWN_CHANGES
        changed[_SHOWN_CHANGES:] = [f"{more} more"] * (more > 0)
        cells = [
            Cell(record.name, link=record.page.relative_to(record.output_folder).as_posix()),
            Cell(record.shown_result, state=record.state),
            Cell(duration(seconds), seconds),
            *(metric_cell(values[name]) if name in values else Cell("") for name in names),
            Cell("; ".join(changed)),
        ]
        rows.append(Row(cells))
    return Table("Runs of this folder", columns, rows, filter="runs")


def _metrics_of(record: RunRecord) -> dict[str, float | None]:
    """Return the metrics on all rows; empty if the run evaluated no model."""
    values = {name: each["value"] for name, each in record.summary["metrics"].items()}
    return values if record.summary["slices"] else {}


def changes(before: RunRecord, after: RunRecord) -> list[tuple[str, str, str]]:
    """Return (name, before, after) of the settings that differ, then of rows and versions."""
    return [
        *_differences(before.settings, after.settings, "default"),
        *_differences({"rows": before.summary["rows"]}, {"rows": after.summary["rows"]}, "none"),
        *_differences(_made_by(before), _made_by(after), "none"),
    ]


def _made_by(record: RunRecord) -> Mapping[str, JsonValue]:
    made_by = record.summary.get("made_by") or {}
    return {name: value for name, value in made_by.items() if name != "command"}


def _differences(
    before: JsonValue, after: JsonValue, missing: str
) -> Iterator[tuple[str, str, str]]:
    ours, theirs = ({name: _text(v) for name, v in leaves(each)} for each in (before, after))
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name, missing), theirs.get(name, missing)
        if one != other and name != "output.folder":
            yield name, one, other


def leaves(value: JsonValue, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Yield the dotted name of each value in a document; a list of plain values is one value.

    The parts of a list are named by their field `name` where they have one, so that a group of
    features that was inserted does not rename the others.
    """
    parts: list[tuple[str, JsonValue]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        parts = [
            (str(each.get("name", place)) if isinstance(each, dict) else str(place), each)
            for place, each in enumerate(value)
        ]
    if not parts:
        yield name, value
    for key, each in parts:
        yield from leaves(each, f"{name}.{key}" if name else key)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
