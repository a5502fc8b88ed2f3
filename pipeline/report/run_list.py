"""The runs of an output folder on the terminal: all of them, or what differs between two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.report.metrics import metric_number
from pipeline.report.progress import duration
from pipeline.report.records import runs_in
from pipeline.report.run_record import INDEX, RunRecord, records_of
from pipeline.report.tables import print_table, short, table_of

_STYLES = {"blessed": "green", "not blessed": "red", "failed": "red", "interrupted": "yellow"}
_SHOWN_CHANGES = 3
_PLACES = ("output.folder",)  # fields that change no result


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
    others = [name for name in runs_in(metadata) if name not in recorded]
    if not records and not others:
        raise ConfigError(
            f"{folder}: holds no run. Run the pipeline first, or give the YAML or the output "
            "folder of one that has run."
        )
    names = metric_names(records)
    table = table_of("run", "result", "time", *names, "changed", left=2)
    table.columns[0].no_wrap = True
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for name in others:
        table.add_row(name, Text("no record", style="dim"), *[""] * (len(names) + 2))
    for before, record in zip([None, *records], records, strict=False):
        values = metrics_of(record)
        style = "yellow" if record.warnings else _STYLES.get(record.result, "")
        table.add_row(
            record.name,
            Text(record.shown_result, style=style),
            duration(seconds_of(record)),
            *(metric_number(values[name]) if name in values else "" for name in names),
            Text(changes_text(before, record)),
        )
    print_table(console, table)
    if (folder / INDEX).is_file():
        console.print(f"\npage of all runs   {short(folder / INDEX)}", soft_wrap=True)


def show_difference(one: RunRecord, other: RunRecord, console: Console) -> None:
    """Print what differs between two runs: settings, metrics of each slice, time of each node."""
    settings = table_of("changed", one.name, other.name, left=3)
    for change in changes(one, other):
        settings.add_row(*map(Text, change))
    if settings.row_count:
        print_table(console, settings)
    else:
        console.print("Settings, rows and versions are the same.")
    console.print()
    numbers = table_of("", one.name, other.name, "change")
    for name, before, after in metric_pairs(one, other):
        change = "" if before is None or after is None else f"{after - before:+.4f}"
        shown = ("" if value is None else metric_number(value) for value in (before, after))
        numbers.add_row(Text(name), *shown, change)
    times = [
        {node["name"]: node["seconds"] for node in each.summary["nodes"]} for each in (one, other)
    ]
    for name in dict.fromkeys([*times[0], *times[1]]):
        before, after = (each.get(name) for each in times)
        change = "" if before is None or after is None else f"{after - before:+.1f} s"
        shown = ("" if value is None else duration(value) for value in (before, after))
        numbers.add_row(Text(f"time of {name}"), *shown, change)
    numbers.add_row("result", one.shown_result, other.shown_result, "")
    print_table(console, numbers)


def metric_names(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of all metrics, those of the latest run first."""
    return list(dict.fromkeys(name for each in reversed(records) for name in metrics_of(each)))


def metrics_of(record: RunRecord) -> dict[str, float | None]:
    """Return the metrics on all rows; empty if the run evaluated no model."""
    values = {name: each["value"] for name, each in record.summary["metrics"].items()}
    return values if record.summary["slices"] else {}


def metric_pairs(one: RunRecord, other: RunRecord) -> list[tuple[str, float | None, float | None]]:
    """Return each metric of each slice in two runs; None where it is undefined or missing."""
    ours, theirs = (
        {
            (name, tuple(each["slice"].items())): value
            for each in record.summary["slices"]
            for name, value in each["metrics"].items()
        }
        for record in (one, other)
    )
    pairs = []
    for metric, key in dict.fromkeys([*ours, *theirs]):
        named = ", ".join(f"{column}={value}" for column, value in key)
        name = f"{metric} of {named}" if named else metric
        pairs.append((name, ours.get((metric, key)), theirs.get((metric, key))))
    return pairs


def seconds_of(record: RunRecord) -> float:
    """Return the wall time of a run in seconds."""
    run = record.summary["run"]
    started, ended = (datetime.fromisoformat(run[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()


def changes_text(before: RunRecord | None, after: RunRecord) -> str:
    """Return the first changes since a run and the number of the others; "" without a run."""
    texts = [change_text(change) for change in changes(before, after)] if before else []
    more = len(texts) - _SHOWN_CHANGES
    return "; ".join([*texts[:_SHOWN_CHANGES], *([f"{more} more"] if more > 0 else [])])


def change_text(change: tuple[str, str, str]) -> str:
    """Return a change in one line, as `training.epochs: 10 → 20`."""
    name, before, after = change
    return f"{name}: {before} → {after}"


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
        if one != other and name not in _PLACES:
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
