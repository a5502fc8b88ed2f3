"""The nodes of the run: order, time, rows per second, cache, artifacts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.page import charts
from pipeline.page.elements import (
    Block,
    Cell,
    Chart,
    Column,
    Row,
    Section,
    State,
    Table,
    number_cell,
)
from pipeline.page.inputs import RunInputs

_STATES: Mapping[str, State] = {"cached": "quiet", "failed": "bad", "interrupted": "warning"}


def section_of(run: RunInputs) -> Section:
    """Return the section: the graph, a table of its nodes, and a chart of their times."""
    nodes = run.summary["nodes"]
    columns = [
        Column("node"),
        Column("result"),
        Column("seconds", is_number=True, help="wall time"),
        Column("rows/s", is_number=True, help="rows that the node reads, by its wall time"),
        Column("after", help="the nodes whose outputs it reads"),
        Column("artifacts", help="folders of its outputs"),
    ]
    rows = [
        Row(
            [
                Cell(node["name"]),
                Cell(
                    _shown(node["result"]),
                    state=_STATES.get(node["result"], ""),
                ),
                number_cell(node["seconds"], f"{node['seconds']:.1f}"),
                _rate(node),
                Cell(", ".join(_upstream(run, node["name"]))),
                _artifacts(run, node["name"]),
            ]
        )
        for node in nodes
    ]
    blocks: list[Block] = [*_drawing(run), Table("Nodes", columns, rows)]
    if any(node["seconds"] for node in nodes):
        names = [node["name"] for node in nodes]
        seconds = [node["seconds"] for node in nodes]
        chart = Chart(
            "Seconds of each node", charts.bars("seconds", ""), {"y": names, "x": seconds}
        )
        blocks.append(chart)
    return Section("pipeline", "Pipeline", blocks)


def _drawing(run: RunInputs) -> list[Block]:
    """Return the graph as a chart: each node below the nodes whose outputs it reads.

    A line is left out if a longer way leads to the same node.
    """
    nodes = run.summary["nodes"]
    names = [node["name"] for node in nodes]  # in execution order
    after = {name: [e for e in _upstream(run, name) if e in names] for name in names}
    before: dict[str, set[str]] = {}
    for name in names:
        before[name] = {*after[name]}.union(*(before[each] for each in after[name]))
    if not any(after.values()):
        return []
    rows: dict[str, int] = {}
    for name in names:
        rows[name] = max((rows[each] + 1 for each in after[name]), default=0)
    levels = [[name for name in names if rows[name] == row] for row in range(len(names))]
    places = {
        name: (2 * place + 1) / (2 * len(level))
        for level in levels
        for place, name in enumerate(level)
    }
    data: dict[str, list[JsonValue]] = {
        key: [] for key in ("x", "y", "x2", "y2", "node", "result", "text")
    }
    lines = [
        (
            places[each],
            rows[each] + charts.HALF_BOX,
            places[name],
            rows[name] - charts.HALF_BOX,
            f"{each} to {name}",
            "",
            "",
        )
        for name in names
        for each in after[name]
        if not any(each in before[other] for other in after[name])
    ]
    boxes = []
    for node in nodes:
        name, result = node["name"], _shown(node["result"])
        text = f"{name}\n{result}, {node['seconds']:.1f} s"
        boxes.append((places[name], rows[name], None, None, name, result, text))
    for line in [*lines, *boxes]:
        for key, value in zip(data, line, strict=True):
            data[key].append(value)
    description = "The table below has the same nodes, with the nodes that each one reads from."
    spec = charts.node_graph(levels=max(rows.values()) + 1)
    return [Chart("Which node reads from which", spec, data, description, has_numbers=False)]


def _shown(result: str) -> str:
    return "run" if result == "done" else result


def _upstream(run: RunInputs, name: str) -> tuple[str, ...]:
    record = run.nodes.get(name)
    return () if record is None else record.after


def _rate(node: JsonObject) -> Cell:
    rows = node.get("rows")
    if rows is None or node["result"] != "done" or not node["seconds"]:
        return Cell("")
    return number_cell(rows / node["seconds"], f"{rows / node['seconds']:,.0f}")


def _artifacts(run: RunInputs, name: str) -> Cell:
    """Return a cell that links to the node's first output and names the others."""
    record = run.nodes.get(name)
    outputs = {} if record is None else record.outputs
    folders = {key: Path(found[-1].uri) for key, found in outputs.items() if found}
    if not folders:
        return Cell("")
    key, folder = next(iter(folders.items()))
    link = os.path.relpath(folder, run.record.folder) if folder.is_dir() else ""
    note = "\n".join(f"{each}: {place}" for each, place in folders.items())
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    return Cell(f"{key}{more}", note=note, link=link)
