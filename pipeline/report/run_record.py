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
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pydantic

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.report.tables import State
from shared_core.atomic_files import atomic_write
from shared_core.run_warning import count_warnings

RUNS = "runs"
"""Folder of the records in an output folder."""

INDEX = "index.html"
"""Page of all runs, in the output folder."""

SUMMARY, CONFIG, PAGE = "summary.json", "config.json", "report.html"
"""Files of a record."""

_STATES: Mapping[str, State] = {
    "blessed": "good",
    "not blessed": "bad",
    "failed": "bad",
    "interrupted": "warning",
}


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
        """The content of config.json: the fields that were set."""
        return json.loads((self.folder / CONFIG).read_text(encoding="utf-8"))

    @functools.cached_property
    def config(self) -> PipelineConfig:
        """The configuration of the run, in the output folder as it is called now."""
        settings = {**self.settings, "output": {"folder": str(self.output_folder)}}
        try:
            return PipelineConfig.model_validate(settings)
        except pydantic.ValidationError as error:
            raise ConfigError(
                f"{self.folder / CONFIG}: cannot be read as a configuration "
                f"({error.error_count()} errors, first {error.errors()[0]['loc']}). It may be of "
                "another version of this package; read it with that version."
            ) from None

    @property
    def output_folder(self) -> Path:
        """The output folder that holds the record."""
        return self.folder.parents[1]

    @property
    def page(self) -> Path:
        """The page of the run, which may not exist."""
        return self.folder / PAGE

    @property
    def result(self) -> str:
        """`blessed`, `not blessed`, `not judged`, `failed` or `interrupted`."""
        result = str(self.summary["run"].get("result", "done"))
        return self.summary["verdict"]["result"] if result == "done" else result

    @property
    def warnings(self) -> int:
        """Number of warnings of a model that is blessed nevertheless."""
        return len(self.summary.get("warnings", ())) if self.result == "blessed" else 0

    @property
    def state(self) -> State:
        """How the result is marked."""
        return "warning" if self.warnings else _STATES.get(self.result, "")

    @property
    def shown_result(self) -> str:
        """The result as tables and pages show it: `blessed with 2 warnings`."""
        with_ = f" with {count_warnings(self.warnings)}" if self.warnings else ""
        return f"{self.result}{with_}"


def write_record(
    folder: Path, config: PipelineConfig, summary: Mapping[str, JsonValue]
) -> RunRecord:
    """Write the record of a run atomically, file by file; summary.json is the last one."""
    with atomic_write(folder / CONFIG) as stream:
        stream.write(config.model_dump_json(indent=1, by_alias=True, exclude_unset=True) + "\n")
    with atomic_write(folder / SUMMARY) as stream:
        json.dump(summary, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
    return RunRecord(folder)


def records_of(output_folder: str | Path) -> list[RunRecord]:
    """Return the records of an output folder, oldest first; a folder without summary is none."""
    folders = (file.parent for file in Path(output_folder).glob(f"{RUNS}/*/{SUMMARY}"))
    return [RunRecord(folder) for folder in sorted(folders)]


def latest_record(output_folder: str | Path) -> RunRecord:
    """Return the record of the latest run; a ConfigError without any."""
    records = records_of(output_folder)
    if not records:
        raise ConfigError(
            f"{output_folder}: holds no record of a run. `run` writes one when it ends; give the "
            "YAML or the output folder of a pipeline that has run."
        )
    return records[-1]


def made_by(command: str) -> JsonObject:
    """Return the command, the version of each package, and the Git commit where there is one."""
    found: JsonObject = {"command": command, "python": platform.python_version()}
    for name in ("tfx-largebatch", "tfx", "tensorflow", "keras", "apache-beam"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        found["git commit"] = commit + (" with changed files" if changed else "")
    return found


def _git(*arguments: str) -> str:
    """Return what Git prints about the working directory; "" outside of a repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
