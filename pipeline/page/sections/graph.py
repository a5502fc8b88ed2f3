"""The nodes of the run: order, time, rows per second, cache, artifacts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.common.json_types import JsonObject
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
    """Return the section: a table of the nodes, and a chart of their times."""
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
    blocks: list[Block] = [Table("Nodes", columns, rows)]
    if any(node["seconds"] for node in nodes):
        names = [node["name"] for node in nodes]
        seconds = [node["seconds"] for node in nodes]
        chart = Chart(
            "Seconds of each node", charts.bars("seconds", ""), {"y": names, "x": seconds}
        )
        blocks.append(chart)
    return Section("pipeline", "Pipeline", blocks)


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
