"""`index.html`: the runs of an output folder, sortable, with their metrics and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.graph.node_names import NodeName
from pipeline.page.charts import lines
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Chart,
    Column,
    Items,
    Row,
    Section,
    Table,
    Text,
    Tile,
    number_cell,
)
from pipeline.page.finite import rounded
from pipeline.page.render import render
from pipeline.page.states import state_of
from pipeline.report.curves import curves_of
from pipeline.report.records import find_output, run_by_id
from pipeline.report.run_changes import changes
from pipeline.report.run_list import changes_text, metric_names, metrics_of, seconds_of
from pipeline.report.run_record import INDEX, RunRecord, records_of
from shared_core.atomic_files import atomic_write

OVERLAID = 10
"""Trainings whose curves are drawn over each other, the latest ones."""


def write_index(output_folder: str | Path) -> Path:
    """Write `index.html` into an output folder atomically and return the file."""
    folder = Path(output_folder)
    records = records_of(folder)
    latest = records[-1]
    sections = [Section("runs", "Runs", [_table(records)])]
    for anchor, title, blocks in (
        ("metrics", "Metrics", _metrics(records)),
        ("curves", "Training curves", _curves(records)),
    ):
        if blocks:
            sections.append(Section(anchor, title, blocks))
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


def _metrics(records: Sequence[RunRecord]) -> list[Block]:
    """Return a chart of each metric over the runs that evaluated a model."""
    charts: list[Block] = []
    evaluated = [record for record in records if metrics_of(record)]
    for name in metric_names(evaluated) if len(evaluated) > 1 else ():
        data: dict[str, list[JsonValue]] = {"run": [], "time": [], "y": [], "result": []}
        for record in evaluated:
            data["run"].append(record.name)
            data["time"].append(_time(record))
            data["y"].append(metrics_of(record).get(name))
            data["result"].append(record.result)
        charts.append(Chart(f"{name} of each run", _over_time(name), data))
    return [Beside(charts)] if charts else []


def _curves(records: Sequence[RunRecord]) -> list[Block]:
    """Return the curves of the latest trainings, overlaid; a run with a cached model made none."""
    trainings: dict[Path, str] = {}
    for record in records:
        nodes = run_by_id(record.config, record.summary["run"]["id"])
        output = find_output(nodes, NodeName.TRAINER, "model_run")
        if output is not None and Path(output.uri).is_dir():
            trainings.setdefault(Path(output.uri), record.name)
    if len(trainings) < 2:
        return []
    note = "Click a run in a legend to show it alone; click beside it to show all."
    return [Text(note, "quiet"), Beside(overlay(trainings))]


def overlay(trainings: Mapping[Path, str]) -> list[Chart]:
    """Return a chart of the training loss, and of each curve of the eval split, with all runs.

    Args:
        trainings: Folder of the Trainer's output `model_run` -> name of its run; the last
            `OVERLAID` are drawn.
    """
    charts: dict[str, dict[str, list[JsonValue]]] = {}
    for folder, name in list(trainings.items())[-OVERLAID:]:
        for curve in curves_of(folder):
            if curve.split == "eval" or curve.name == "loss":
                title = f"{curve.name} on {curve.split} rows"
                data = charts.setdefault(title, {"x": [], "y": [], "series": []})
                data["x"] += curve.steps
                data["y"] += [rounded(value) for value in curve.values]
                data["series"] += [name] * len(curve.steps)
    return [Chart(title, _overlaid(title), data) for title, data in charts.items()]


def _overlaid(title: str) -> JsonObject:
    spec = lines("optimizer step", title, series="run")
    spec["params"] = [
        {"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}
    ]
    spec["encoding"]["opacity"] = {"condition": {"param": "chosen", "value": 1}, "value": 0.1}
    return spec


def _time(record: RunRecord) -> str:
    return datetime.fromisoformat(record.summary["run"]["started"]).isoformat()


def _over_time(metric: str) -> JsonObject:
    return {
        "width": "container",
        "height": 180,
        "mark": {"type": "line", "point": {"size": 60}, "tooltip": True},
        "encoding": {
            "x": {
                "field": "time",
                "type": "temporal",
                "title": "start of the run",
                "axis": {"tickCount": 5},
            },
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": metric,
                "scale": {"zero": False},
            },
            "tooltip": [
                {"field": "run", "type": "nominal"},
                {"field": "y", "type": "quantitative", "title": metric, "format": ".4f"},
                {"field": "result", "type": "nominal"},
            ],
        },
    }
