"""Write the record of a run and its page when the run ends, whatever its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pipeline.config.config import PipelineConfig
from pipeline.report.progress import RunState
from pipeline.report.records import latest_run_id, run_by_id
from pipeline.report.result import RunResult
from pipeline.report.run_record import RUNS, RunRecord, made_by, write_record
from pipeline.report.summary_file import summary_of


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

    Args:
        config: The configuration that ran.
        state: The nodes of the run.
        started: The start of the run.
        command: The command that started it.
        rows: Returns the number of rows of each split.
        error: Why the run failed; empty if it did not.
        result: What the run found; None: it is loaded.
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
