"""The end of a run: its record and page, the next commands, its exit code and JSON document."""

from __future__ import annotations

import glob
import json
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from components.arrow_example_gen.spans import has_placeholders
from pipeline.common.json_types import JsonObject
from pipeline.common.program import program, shell_argument
from pipeline.common.sources import COLUMNAR
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote
from pipeline.data.data_sources import files
from pipeline.graph.node_names import NodeName
from pipeline.report.progress import RunState
from pipeline.report.records import latest_run_id, run_by_id
from pipeline.report.result import RunResult
from pipeline.report.run_record import RUNS, RunRecord, made_by, write_record
from pipeline.report.summary_file import summary_of
from pipeline.report.tables import short


class RunOutcome(NamedTuple):
    """The end of a run.

    Attributes:
        code: The exit code: see `pipeline.common.exit_codes.OF_A_RUN`.
        document: The content of `summary.json`, or `{"error": {...}}`.
    """

    code: int
    document: JsonObject

    @classmethod
    def failure(
        cls, code: int, message: str, *, node: str | None = None, log: Path | None = None
    ) -> RunOutcome:
        """Return the end of a run without a summary: its node and log, if these had started."""
        error = {"message": message, "node": node, "exit_code": code, "log": log and str(log)}
        return cls(code, {"error": error})

    def print_json(self) -> None:
        """Print the document to standard output, in ASCII, whose bytes no encoding changes."""
        print(json.dumps(self.document, indent=1, allow_nan=False))


def keep_record(
    config: PipelineConfig,
    state: RunState,
    *,
    started: datetime,
    command: str,
    rows: Callable[[], dict[str, int]],
    error: str = "",
    result: RunResult | None = None,
) -> RunRecord | None:
    """Write the record and the page of a run that ended; return None if no node started.

    `rows` returns the number of rows of each split, and `error` says why the run failed. Without a
    `result`, it is loaded.
    """
    if all(node.status == "waiting" for node in state.nodes):
        return None
    run_id = latest_run_id(config)
    if run_id < f"{started.replace(tzinfo=None).isoformat()}":  # the run before
        run_id = ""
    if result is None or not run_id:
        result = RunResult(config, run_by_id(config, run_id) if run_id else {})
    summary = summary_of(result, state, run_id=run_id, rows=rows(), started=started, error=error)
    record = write_record(
        _new_folder(config, started), config, {**summary, "made_by": made_by(command)}
    )
    try:
        from pipeline.page.page import write_index, write_page

        write_page(record, result)
        write_index(config.output.folder)
    except Exception:  # the result of the run matters more
        logging.getLogger("absl").exception("Cannot write the page of the run.")
    return record


def _new_folder(config: PipelineConfig, started: datetime) -> Path:
    """Return the folder of the record of a run; it does not exist yet."""
    name = f"{started:%Y%m%d-%H%M%S}"
    runs = Path(config.output.folder) / RUNS
    folder, number = runs / name, 2
    while folder.exists():
        folder, number = runs / f"{name}-{number}", number + 1
    return folder


def show_next_steps(run: RunResult, console: Console) -> None:
    """Print the commands that predict with a run's model and show its curves."""
    commands = []
    pushed = run.pushed_model
    if pushed and pushed.exists():
        commands.append(("predict", _predict_command(run.config, pushed)))
    if logs := run.uri(NodeName.TRAINER, "model_run"):
        commands.append(("curves", f"tensorboard --logdir {_path(logs)}"))
    for name, command in commands:
        # Not `console.print`, which replaces `:name:` by an emoji and tabs by spaces.
        console.file.write(f"{name:<10}{command}\n")


def _predict_command(config: PipelineConfig, model: Path) -> str:
    """Return the command that predicts with a pushed model, if possible on its evaluated rows."""
    path = _data_path(config)
    parts = [program(), "predict", "--model", _path(model), "--data", _path(path)]
    return " ".join([*parts, "--source", config.data.source])


def _data_path(config: PipelineConfig) -> str:
    """Return a data path for `predict`: one file, or one Parquet or Arrow table."""
    field = "eval_path" if config.data.eval_path else "path"
    path = config.data.eval_path or config.data.path
    if is_remote(path) or (
        config.data.source in (*COLUMNAR, "images") and not has_placeholders(path)
    ):
        return path
    found = files(path, f"data.{field}", source=config.data.source, spans=config.data.spans)
    if path.startswith(PACKAGE_SCHEME) and len(found) == 1:
        return path
    return glob.escape(str(found[-1]))


def _path(path: str | Path) -> str:
    text = str(path)
    return shell_argument(text if "://" in text else short(Path(text)))
