"""The record of each run: a folder `runs/<start>` in the output folder.

    runs/20261126-091000/
      summary.json    what pipeline.report.summary_file describes; also of a run that failed
      config.json     the configuration of the run, with absolute paths
      report.html     its page

A record holds what ML Metadata does not: the result, its reason, the time of each node, the
configuration. Artifacts stay where they are; ML Metadata knows the run by `summary["run"]["id"]`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from shared_core.atomic_files import atomic_write

RUNS = "runs"
"""Folder of the records in an output folder."""

SUMMARY, CONFIG, PAGE = "summary.json", "config.json", "report.html"
"""Files of a record."""


@dataclass(frozen=True)
class RunRecord:
    """A run of a pipeline.

    Attributes:
        folder: Folder of the record; its name is the time of the start.
    """

    folder: Path

    @property
    def name(self) -> str:
        """What the run is called: the local time of its start, such as 20261126-091000."""
        return self.folder.name

    @functools.cached_property
    def summary(self) -> JsonObject:
        """The content of summary.json."""
        return json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))

    @functools.cached_property
    def settings(self) -> JsonObject:
        """The content of config.json; empty if the file is missing."""
        file = self.folder / CONFIG
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    @property
    def page(self) -> Path:
        """The page of the run, which may not exist."""
        return self.folder / PAGE

    @property
    def result(self) -> str:
        """`blessed`, `not blessed`, `not judged`, `failed` or `interrupted`."""
        result = str(self.summary["run"].get("result", "done"))
        return self.summary["verdict"]["result"] if result == "done" else result


def write_record(
    folder: Path, config: PipelineConfig, summary: Mapping[str, JsonValue]
) -> RunRecord:
    """Write the record of a run atomically, file by file; summary.json is the last one."""
    with atomic_write(folder / CONFIG) as stream:
        stream.write(config.model_dump_json(indent=1, exclude_unset=True) + "\n")
    with atomic_write(folder / SUMMARY) as stream:
        json.dump(summary, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    return RunRecord(folder)


def records_of(output_folder: str | Path) -> list[RunRecord]:
    """Return the records of an output folder, oldest first; a folder without summary is none."""
    folders = (file.parent for file in Path(output_folder).glob(f"{RUNS}/*/{SUMMARY}"))
    return [RunRecord(folder) for folder in sorted(folders)]
