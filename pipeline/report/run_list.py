"""The runs of an output folder on the terminal: all of them, or two side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.report.progress import duration
from pipeline.report.records import runs_in
from pipeline.report.run_changes import changes
from pipeline.report.run_record import INDEX, RunRecord, records_of
from pipeline.report.short_path import short
from pipeline.report.slices import metric_number
from pipeline.report.stacked_tables import print_table

_STYLES = {"blessed": "green", "not blessed": "red", "failed": "red", "interrupted": "yellow"}
_SHOWN_CHANGES = 3
_Slice = tuple[tuple[str, JsonValue], ...]  # (column, value) of each column; empty: all rows


def show_runs(folder: Path, metadata: Path, console: Console) -> None:
    """Print the runs of an output folder, the latest one last.

    Args:
        folder: The output folder.
        metadata: Its metadata store, which also knows runs that have no record.
        console: Where to print.

    Raises:
        ConfigError: There is no run.
    """
    records = records_of(folder)
    recorded = {record.summary["run"]["id"] for record in records}
    others = [each for each in runs_in(metadata) if each not in recorded]
    if not records and not others:
        raise ConfigError(
            f"{folder}: holds no run. Run the pipeline first, or give the YAML or the output "
            "folder of one that has run."
        )
    names = metric_names(records)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("result")
    table.add_column("time", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("changed")
    for name in others:
        table.add_row(name, Text("no record", style="dim"), *[""] * (len(names) + 2))
    before: RunRecord | None = None
    for record in records:
        values = metrics_of(record)
        table.add_row(
            record.name,
            Text(
                record.shown_result,
                style="yellow" if record.warnings else _STYLES.get(record.result, ""),
            ),
            duration(seconds_of(record)),
            *(metric_number(values[name]) if name in values else "" for name in names),
            Text("" if before is None else changes_text(before, record)),
        )
        before = record
    print_table(console, table)
    if (folder / INDEX).is_file():
        console.print(f"\npage of all runs   {short(folder / INDEX)}", soft_wrap=True)


def show_difference(one: RunRecord, other: RunRecord, console: Console) -> None:
    """Print what differs between two runs: settings, metrics of each slice, time of each node."""
    settings = Table("changed", one.name, other.name, box=None, header_style="bold", pad_edge=False)
    for change in changes(one, other):
        settings.add_row(*map(Text, change))
    if settings.row_count:
        print_table(console, settings)
    else:
        console.print("Settings, rows and versions are the same.")
    console.print()
    numbers = Table("", box=None, header_style="bold", pad_edge=False)
    for heading in (one.name, other.name, "change"):
        numbers.add_column(heading, justify="right")
    for name, before, after in metric_pairs(one, other):
        change = "" if before is None or after is None else f"{after - before:+.4f}"
        numbers.add_row(Text(name), _number(before), _number(after), change)
    ours, theirs = (
        {node["name"]: float(node["seconds"]) for node in each.summary["nodes"]}
        for each in (one, other)
    )
    for name in [*ours, *(each for each in theirs if each not in ours)]:
        before, after = ours.get(name), theirs.get(name)
        change = "" if before is None or after is None else f"{after - before:+.1f} s"
        numbers.add_row(Text(f"time of {name}"), _seconds(before), _seconds(after), change)
    numbers.add_row("result", one.shown_result, other.shown_result, "")
    print_table(console, numbers)


def metric_names(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of all metrics, those of the latest run first."""
    return list(dict.fromkeys(name for each in reversed(records) for name in metrics_of(each)))


def metrics_of(record: RunRecord) -> dict[str, float | None]:
    """Return the metrics on all rows; empty if the run evaluated no model."""
    found = {name: each["value"] for name, each in record.summary["metrics"].items()}
    return found if record.summary["slices"] else {}


def metric_pairs(one: RunRecord, other: RunRecord) -> list[tuple[str, float | None, float | None]]:
    """Return each metric of each slice in two runs; None where it is undefined or missing."""
    ours, theirs = _by_slice(one), _by_slice(other)
    keys = [*ours, *(each for each in theirs if each not in ours)]
    return [(_metric_name(*key), ours.get(key), theirs.get(key)) for key in keys]


def seconds_of(record: RunRecord) -> float:
    """Return the wall time of a run in seconds."""
    run = record.summary["run"]
    started, ended = (datetime.fromisoformat(run[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()


def changes_text(before: RunRecord, after: RunRecord) -> str:
    """Return the first changes between two runs and the number of the others."""
    found = [change.text for change in changes(before, after)]
    more = len(found) - _SHOWN_CHANGES
    return "; ".join([*found[:_SHOWN_CHANGES], *([f"{more} more"] if more > 0 else [])])


def _by_slice(record: RunRecord) -> Mapping[tuple[str, _Slice], float | None]:
    return {
        (name, tuple(each["slice"].items())): value
        for each in record.summary["slices"]
        for name, value in each["metrics"].items()
    }


def _metric_name(metric: str, of: _Slice) -> str:
    named = ", ".join(f"{column}={value}" for column, value in of)
    return f"{metric} of {named}" if named else metric


def _number(value: float | None) -> str:
    return "" if value is None else metric_number(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else duration(value)
