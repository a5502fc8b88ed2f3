"""The commands that work on this machine: from `init` to `predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import rich_click as click

from pipeline.cli.base import (
    FILE,
    command,
    config_value,
    data_value,
    flag,
    force_option,
    list_exit_codes,
    load,
    option,
    output_option,
    quiet,
    set_option,
    source_help,
    source_option,
    value,
)
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.nearest_file import did_you_mean
from pipeline.common.program import program, shell_argument
from shared_core.atomic_files import message_stream

if TYPE_CHECKING:
    from pipeline.common.sources import Source

_DATA = (
    "CSV with a header line, Parquet, Arrow or TFRecord of tf.Example; a glob of such files, or "
    "package://tfx/some/file.csv"
)
_PIPELINE = "the pipeline's YAML, or its output folder"


@command("init", epilog="Example:\n  python -m pipeline init houses.csv --label price\n")
@data_value(help=_DATA)
@option(
    "--label",
    metavar="NAME",
    help="the column to predict; default: a column named target, class, ..., else the last usable "
    "one",
)
@source_option(**source_help("by the file's name (.csv, .parquet, .feather, ...)"))
@option(
    "--header/--no-header",
    default=None,
    help="whether the first line of CSV files names the columns (if not: column_1, column_2, ...); "
    "default: it does, and a first line that looks like data is an error",
)
@output_option(
    metavar="YAML", help="file to write; default: <name of the data>.yaml in this folder"
)
@force_option
def init(
    data: str,
    label: str | None,
    source: Source | None,
    header: bool | None,
    output: Path | None,
    force: bool,
) -> int:
    """Write a complete first YAML for a data file.

    Reads a data file and writes a YAML that `run` accepts without an edit: features, label,
    training and evaluation, chosen from statistics of the columns. Comments give the reasons.
    """
    quiet()
    from pipeline.features.first_config import init_file
    from pipeline.features.suggestion import show_left_out
    from pipeline.preflight.preflight import check_data

    written = init_file(
        data,
        label=label,
        source=source,
        header=header,
        output=output,
        force=force,
        check=check_data,
    )
    stream = message_stream(written.path)
    for note in written.notes:
        print(f"note: {note}", file=stream)
    show_left_out(written.left_out, stream)
    for warning in written.warnings:
        print(f"warning: {warning}", file=stream)
    print(
        f"{written.path}: predicts {written.label} ({written.kind}). Review its comments, then\n"
        f"  {program()} run --config {shell_argument(written.path)}",
        file=stream,
    )
    return 0


@command("run", epilog=list_exit_codes(exit_codes.OF_A_RUN))
@config_value(required=True)
@set_option()
@flag(
    "--quiet", "is_quiet", help="print only the verdict, and warnings and errors to standard error"
)
@flag(
    "--json",
    "as_json",
    help="print summary.json, or the error, as one JSON document; the rest to standard error",
)
def run(
    config: Path,
    overrides: tuple[str, ...],
    is_quiet: bool,
    as_json: bool,
) -> int:
    """Run a pipeline on this machine.

    Runs every node, shows its progress and prints a summary at the end. Nodes whose inputs,
    settings and code have not changed since an earlier run are taken from the cache.
    """
    from pipeline.run import runner
    from pipeline.run.run_end import RunOutcome

    try:
        outcome = runner.run(
            load(config, overrides),
            quiet=is_quiet,
            as_json=as_json,
        )
    except (Exception, KeyboardInterrupt) as error:
        if as_json:
            code = exit_codes.FAILED
            if isinstance(error, ConfigError):
                code = exit_codes.WRONG_INPUT
            elif isinstance(error, KeyboardInterrupt):
                code = exit_codes.INTERRUPTED
            RunOutcome.failure(code, str(error)).print_json()
        raise
    if as_json:
        outcome.print_json()
    return outcome.code


@command("report", epilog="Example:\n  python -m pipeline report my.yaml --open\n")
@config_value(metavar="PATH", required=True, help=_PIPELINE)
@flag("--open", "open_page", help="open the page in the browser")
def report(config: Path, open_page: bool) -> int:
    """Write the page of the latest run: report.html.

    `run` writes it at its end, too. It is one file that needs no network: verdict, columns
    that matter, warnings, evaluation, features, data, training, and how to repeat the run.
    """
    quiet()
    from pipeline.page.page import write_index, write_page
    from pipeline.report.run_record import latest_record
    from pipeline.report.tables import short

    folder = _output_folder(config)
    page = write_page(latest_record(folder))
    write_index(folder)
    print(short(page))
    # xdg-open ends at once, and only its code says that nothing was opened; macOS' would wait.
    if open_page and click.launch(str(page), wait=sys.platform == "linux") != 0:
        print(f"No browser could be opened. Open {page.resolve()} yourself.", file=sys.stderr)
        return exit_codes.FAILED
    return exit_codes.DONE


@command("runs", epilog="Example:\n  python -m pipeline runs output/taxi\n")
@config_value(metavar="PATH", required=True, help=_PIPELINE)
def runs(config: Path) -> int:
    """List all runs: start, result, time, metrics, what changed since the run before."""
    quiet()
    from rich.console import Console

    from pipeline.report.run_list import show_runs
    from pipeline.run.runner import PIPE_WIDTH

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    show_runs(_output_folder(config), console)
    return 0


def _output_folder(path: Path) -> Path:
    """Return the output folder that a YAML names, or the folder itself."""
    if path.is_dir():
        return path
    if not path.exists():
        raise ConfigError(
            f"{path}: no such file or folder. {did_you_mean(path)}Give the pipeline's YAML, or "
            "its output folder."
        )
    return Path(load(path).output.folder)


@command("predict")
@value(
    "--model",
    metavar="FOLDER",
    type=FILE,
    required=True,
    help="a pushed model, or the folder of its numbered versions (default: the latest)",
)
@data_value(help="rows: CSV, TFRecord (.gz, .zst, ...), Parquet, Arrow; - for stdin")
@source_option(**source_help("by the file's name; csv for standard input"))
@option(
    "--config",
    metavar="YAML",
    type=FILE,
    help="a pipeline's YAML whose data.csv describes the CSV, if detection fails",
)
@set_option("data.csv.encoding=cp1252")
@option(
    "--keep",
    metavar="NAMES",
    help="columns of the input to write (`--keep id,date`); default: all but images",
)
@option(
    "--on-error",
    metavar="fail|skip",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="what to do with a row that the model cannot read: stop, or skip and count it",
)
@output_option(metavar="CSV", help="the rows with their predictions; default: show the first rows")
def predict(
    model: Path,
    data: str,
    source: Source | None,
    config: Path | None,
    overrides: tuple[str, ...],
    keep: str | None,
    on_error: Literal["fail", "skip"],
    output: Path | None,
) -> int:
    """Run a pushed model on raw rows.

    Runs a pushed SavedModel on the raw rows of a file; the model normalises them. Writes
    `prediction` (the class, or a number in the label's unit) and, for classes,
    `probability_<class>`.
    """
    quiet()
    from pipeline.run import predict

    if config is None and overrides:
        raise ConfigError(f"--set {overrides[0]}: needs --config; add it.")
    return predict.predict(
        model,
        data,
        output,
        kind=source,
        keep=None if keep is None else [name for name in keep.split(",") if name],
        on_error=on_error,
        csv_options=None if config is None else load(config, overrides).data.csv,
    )


@command("profile", epilog="Example:\n  python -m pipeline profile my.yaml --steps 20\n")
@config_value(required=True)
@set_option("training.micro_batch_size=64")
@option(
    "--steps",
    metavar="NUMBER",
    type=click.IntRange(min=1, max=1000),
    default=50,
    show_default=True,
    help="optimizer steps to profile, after those that compile the graph",
)
def profile(config: Path, overrides: tuple[str, ...], steps: int) -> int:
    """Show where the time of a training step goes.

    Takes optimizer steps of the configured training on the transformed rows of the latest run, and
    writes nothing. Prints the time of reading, forward, backward, reduction over replicas, update,
    host overhead, rows per second and peak memory.
    """
    quiet()
    from pipeline.run.profile import profile

    print(profile(load(config, overrides), steps=steps))
    return 0


@command("schema")
def schema() -> int:
    """Print the JSON Schema of the YAML.

    Describes every field with its unit and default, for completion and checks in editors.
    """
    from pipeline.config.config import json_schema

    print(json_schema())
    return 0
