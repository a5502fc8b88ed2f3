"""Inputs of the sections of a page, with artifacts in folders and without ML Metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from run_records import write

from pipeline.page.elements import Beside, Block, Group, Table
from pipeline.page.inputs import RunInputs
from pipeline.report.records import NodeRecord, OutputArtifact

Artifacts = Mapping[tuple[str, str], Path]
"""(node, output) -> folder."""


def inputs(folder: Path, artifacts: Artifacts, **summary: Any) -> RunInputs:
    """Returns the inputs of a run with these artifacts.

    Args:
        folder: The output folder.
        artifacts: Artifacts of the run.
        **summary: Fields of the summary (`run_records.write`).
    """
    record = write(folder, "20260131-100000", **summary)
    return RunInputs(
        config=record.config,
        record=record,
        nodes=_nodes(artifacts),
    )


def _nodes(artifacts: Artifacts) -> dict[str, NodeRecord]:
    nodes: dict[str, NodeRecord] = {}
    for (node, key), folder in artifacts.items():
        record = nodes.setdefault(node, NodeRecord(node))
        record.outputs[key] = [OutputArtifact(str(folder), {})]
    return nodes


def blocks_of(blocks: Sequence[Block], kind: type) -> list[Any]:
    """Returns the blocks of a kind, those in groups and side by side too, not those of details."""
    found = []
    for block in blocks:
        if isinstance(block, kind):
            found.append(block)
        if isinstance(block, Group | Beside):
            found += blocks_of(block.blocks, kind)
    return found


def texts_of(table: Table) -> dict[str, dict[str, str]]:
    """Returns row -> column -> text, by the first cell of each row."""
    names = [column.name for column in table.columns]
    return {
        row.cells[0].text: dict(zip(names, (cell.text for cell in row.cells), strict=True))
        for row in table.rows
    }
