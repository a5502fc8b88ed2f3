"""What a run found, and the elements of its page, without ML Metadata."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from run_records import write

from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.page.elements import PageRun
from pipeline.report.metrics import SliceMetrics
from pipeline.report.records import OutputArtifact
from pipeline.report.result import RunResult
from pipeline.report.tables import Table

Artifacts = Mapping[tuple[str, str], Path | str | JsonObject]
"""(node, output) -> its folder, or the properties of an artifact without files."""


def result_of(config: PipelineConfig, artifacts: Artifacts) -> RunResult:
    """Return what a run with these artifacts found."""
    nodes: dict[str, dict[str, OutputArtifact]] = {}
    for (node, key), each in artifacts.items():
        uri, properties = ("", each) if isinstance(each, dict) else (str(each), {})
        nodes.setdefault(node, {})[key] = OutputArtifact(uri, properties)
    return RunResult(config, nodes)


def page_run(folder: Path, artifacts: Artifacts, **fields: Any) -> PageRun:
    """Return a run with these artifacts and its record in the output folder `folder`.

    Args:
        folder: The output folder.
        artifacts: Artifacts of the run.
        **fields: `settings` and fields of the summary (`run_records.write`).
    """
    record = write(folder, "20260131-100000", **fields)
    return PageRun(record, result_of(record.config, artifacts))


def slice_of(key: tuple = (), raw: JsonObject | None = None, **values: float) -> SliceMetrics:
    """Return the metrics of a slice, as TFMA's JSON has them."""
    numbers = {name: {"doubleValue": value} for name, value in values.items()}
    return SliceMetrics(key, {**numbers, **(raw or {})})


def lines_of(show: Any, *arguments: Any) -> list[list[str]]:
    """Return the words of each line that a function prints to the console it gets last."""
    console = Console(file=io.StringIO(), width=300, markup=False, emoji=False)
    show(*arguments, console)
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines() if line.strip()]


def blocks_of(blocks: Any, kind: type, title: str = "") -> list[Any]:
    """Return the blocks of a kind whose title begins so, also those inside others."""
    return [
        each
        for each in _each(blocks)
        if isinstance(each, kind)
        and getattr(each, "title", getattr(each, "caption", "")).startswith(title)
    ]


def _each(blocks: Any) -> Iterator[Any]:
    for block in blocks:
        yield block
        yield from _each(getattr(block, "blocks", ()))


def texts_of(table: Table) -> dict[str, dict[str, str]]:
    """Return row -> column -> text, by the first cell of each row."""
    names = [column.name for column in table.columns]
    return {
        row.cells[0].text: dict(zip(names, (cell.text for cell in row.cells), strict=True))
        for row in table.rows
    }
