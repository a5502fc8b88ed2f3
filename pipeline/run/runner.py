"""Run a pipeline on this machine: checks, progress, a log file, a summary, and a clean exit."""

from __future__ import annotations

import functools
import gc
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems
from pipeline.common.program import program
from pipeline.config.config import PipelineConfig
from pipeline.engines.engine import error_message
from pipeline.graph.node_names import NodeName
from pipeline.preflight import preflight
from pipeline.report import console as views
from pipeline.report import summary
from pipeline.report.progress import ProgressHandler, RunState, duration
from pipeline.report.result import RunResult
from pipeline.report.run_record import RunRecord
from pipeline.report.run_warnings import column_cautions
from pipeline.report.split_statistics import read_statistics
from pipeline.report.summary_file import write_summary
from pipeline.report.tables import short
from pipeline.run.artifact_check import check_artifacts, record_artifacts
from pipeline.run.beam_reflection import reflection_remembered
from pipeline.run.folder_lock import AlreadyRunning, exclusive_run
from pipeline.run.process import absl_to_stderr, compiled_kept, interrupts_kept, logs_to
from pipeline.run.run_end import RunOutcome, keep_record, show_next_steps
from pipeline.tracking.export import export_run
from shared_core.run_warning import RunWarning
from trainer_module import prepare_process

PIPE_WIDTH = 120
"""Columns of the output where there is no terminal to ask."""


def run(
    config: PipelineConfig,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> RunOutcome:
    """Run every node in order on this machine.

    Args:
        config: The checked configuration.
        quiet: Print only the verdict, and warnings and errors to standard error.
        as_json: Print everything to standard error; the caller prints the outcome's document.

    Raises:
        ConfigError: The preflight found an error; nothing has run.
    """
    consoles_of = functools.partial(views.Consoles.of, quiet=quiet, as_json=as_json)
    out, err = Console(markup=False, emoji=False), Console(stderr=True, markup=False, emoji=False)
    say = functools.partial(views.print_text, consoles_of(out, err).warnings)
    preflight.check_writable(config)
    places = {
        "output.folder": Path(config.output.folder),
        "metadata.path": config.metadata_path,
    }
    try:
        with exclusive_run(_command(), places, say=say):
            return _run_alone(config, (out, err), consoles_of)
    except AlreadyRunning as refusal:
        print(refusal, file=sys.stderr)
        return RunOutcome.failure(exit_codes.IN_USE, str(refusal))


def _run_alone(
    config: PipelineConfig,
    streams: tuple[Console, Console],
    consoles_of: Callable[[Console, Console], views.Consoles],
) -> RunOutcome:
    started = datetime.now().astimezone()
    log = config.log_folder / f"run-{started:%Y%m%d-%H%M%S}.log"
    out = consoles_of(*streams).progress
    out.print(f"Pipeline {config.name}; log: {short(log)}", highlight=False, soft_wrap=True)
    # Read now, because standard output and error are the log file below.
    kinds = [(each.is_terminal, each.width) for each in streams]
    with logs_to(log) as terminal, absl_to_stderr(), compiled_kept(_compiled(config)):
        consoles = consoles_of(*map(_console, terminal, kinds))
        return _run(config, consoles, log=log, started=started)


def _compiled(config: PipelineConfig) -> Path:
    return Path(config.output.folder) / "compiled"


def _console(stream: TextIO, kind: tuple[bool, int]) -> Console:
    is_terminal, width = kind
    return Console(
        file=stream,
        force_terminal=is_terminal,
        width=width if is_terminal else PIPE_WIDTH,
        markup=False,
        emoji=False,
    )


def _run(
    config: PipelineConfig,
    consoles: views.Consoles,
    *,
    log: Path,
    started: datetime,
) -> RunOutcome:
    state, console = RunState([]), consoles.progress
    keep = functools.partial(_keep, config, consoles, started=started)
    try:
        if console.is_terminal:
            views.print_text(console, "Loading TFX and checking the configuration ...")
        # Of the trainings that a search may try, one that measures memory demands the most.
        auto = (one for one in config.trainings if one.micro_batch_size == "auto")
        prepare_process(next(auto, config.training))
        register_file_systems(config.model_dump_json(exclude={"cluster"}))
        preflight.check(config)
        runner, pipeline = _prepare(config)
        corrections = check_artifacts(config.output.folder, config.metadata_path)
        _keep_imported_objects()
        for sentence in corrections:
            logging.getLogger("absl").warning("Note: %s.", sentence)
            views.print_text(consoles.warnings, f"Note: {sentence}.")
        state = RunState.of(node.id for node in pipeline.components)
        counts = functools.partial(_row_counts, config)
        cautions = functools.partial(_cautions, config)
        handler = ProgressHandler(state, row_counts=counts, cautions=cautions)
        logging.getLogger("absl").addHandler(handler)
        try:
            lines = views.ProgressLines(state, console)
            with lines, interrupts_kept(), reflection_remembered():
                runner.run(pipeline)
        except BaseException as error:
            state.stop("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        finally:
            logging.getLogger("absl").removeHandler(handler)
            try:
                record_artifacts(config.output.folder, config.metadata_path)
            except Exception:  # the result of the run matters more
                logging.getLogger("absl").exception("Cannot list the files of the artifacts.")
    except KeyboardInterrupt:
        logging.getLogger("absl").warning("Interrupted.")
        node = next((n.name for n in state.nodes if n.status == "interrupted"), None)
        message = (
            f"Interrupted in {node or 'the start'}. "
            "Run the same command to continue: finished nodes are cached."
        )
        views.print_text(consoles.warnings, f"\n{message}")
        keep(state, error=message)
        return RunOutcome.failure(exit_codes.INTERRUPTED, message, node=node, log=log)
    except ConfigError:
        raise
    except Exception as error:
        logging.getLogger("absl").exception("The run failed.")
        # XLA does not compile again where it cannot read a file: a damaged one fails each run.
        shutil.rmtree(_compiled(config), ignore_errors=True)
        node = next((n for n in state.nodes if n.status == "failed"), None)
        where = f"{node.name} failed after {duration(node.seconds)}" if node else "The run failed"
        console = consoles.warnings
        console.print(f"\n{where}:", style="bold red", highlight=False)
        message = error_message(error)
        views.print_text(console, message)
        if record := keep(state, error=message):
            console.print(f"Page: {short(record.page)}", highlight=False, soft_wrap=True)
        console.print(f"Log: {short(log)}", highlight=False, soft_wrap=True)
        failed = node.name if node else None
        return RunOutcome.failure(exit_codes.FAILED, message, node=failed, log=log)
    content, result = {}, RunResult.latest(config)
    summary.show(result, state, consoles)
    # None where TFX's command line only reads the pipeline: no node runs.
    if record := keep(state, result=result):
        content = record.summary
        written = write_summary(config, content)
        views.print_text(console, f"summary   {short(written)}")
        views.print_text(console, f"page      {short(record.page)}")
    show_next_steps(result, console)
    code = exit_codes.NOT_BLESSED if _is_refused(result, state) else exit_codes.DONE
    return RunOutcome(code, content)


def _is_refused(result: RunResult, state: RunState) -> bool:
    """Whether the Evaluator of the run that just ended refused to bless the model."""
    node = state.node(NodeName.EVALUATOR)
    if node is None or node.status not in ("done", "cached"):
        return False  # the result describes an earlier run
    return result.verdict is not None and result.verdict[0] == "not blessed"


def _keep(
    config: PipelineConfig,
    consoles: views.Consoles,
    state: RunState,
    *,
    started: datetime,
    error: str = "",
    result: RunResult | None = None,
) -> RunRecord | None:
    """Write the record and the page of the run, and export it; None if no node started."""
    record = keep_record(
        config,
        state,
        started=started,
        command=_command(),
        rows=functools.partial(_row_counts, config),
        error=error,
        result=result,
    )
    if record is not None:
        say, warn = (
            functools.partial(views.print_text, console)
            for console in (consoles.progress, consoles.warnings)
        )
        export_run(config, record, say=say, warn=warn)
    return record


def _keep_imported_objects() -> None:
    """Exclude what is imported from garbage collection: it stays until the process ends."""
    if gc.get_freeze_count() == 0:  # else a second run of a process would keep the first one's
        gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def _command() -> str:
    """Return the command that started this process, quoted for a shell."""
    return " ".join([program(), *map(shlex.quote, sys.argv[1:])])


def _prepare(config: PipelineConfig):
    import absl.logging
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    from pipeline.graph.build import create_pipeline

    absl.logging.use_absl_handler()
    absl.logging.set_verbosity(absl.logging.INFO)
    return LocalDagRunner(), create_pipeline(config)


def _cautions(config: PipelineConfig) -> list[RunWarning]:
    """Return Transform's warnings, and log them."""
    found = column_cautions(RunResult.latest(config).folder(NodeName.TRANSFORM, "transform_graph"))
    for warning in found:
        logging.getLogger("absl").warning("Transform: %s", warning)
    return found


def _row_counts(config: PipelineConfig) -> dict[str, int]:
    """Return the rows of each split from the statistics; empty before they exist."""
    uri = RunResult.latest(config).uri(NodeName.STATISTICS_GEN, "statistics")
    statistics = read_statistics(Path(uri)) if uri else {}
    return {split: each.rows for split, each in statistics.items()}


def add_import_paths(config_file: Path) -> None:
    """Let dotted paths name modules of the working directory and of the YAML's folder.

    Child processes of Beam and the trainer get the same paths through PYTHONPATH.
    """
    for folder in (os.getcwd(), str(config_file.resolve().parent)):
        if folder not in sys.path:
            sys.path.append(folder)
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder not in known:
            os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, known), folder])
