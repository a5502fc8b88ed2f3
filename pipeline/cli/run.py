"""`python -m pipeline run | predict | schema`."""

from __future__ import annotations

from types import SimpleNamespace

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import choice, command, flag, list_exit_codes, option
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError


@command("run", epilog=list_exit_codes(exit_codes.OF_A_RUN))
@options.config_value()
@options.set_option()
@flag("--verbose", "also show TFX's log on the terminal")
@flag("--quiet", "print only the verdict, and warnings and errors to standard error")
@flag(
    "--json", "print summary.json, or the error, as one JSON document; the rest to standard error"
)
@flag("--wait", "wait for a run that uses the same output folder (default: exit with code 4)")
def run(given: SimpleNamespace) -> int:
    """Run a pipeline on this machine.

    Runs every node, shows its progress and prints a summary at the end. Nodes whose inputs,
    settings and code have not changed since an earlier run are taken from the cache.
    """
    if given.quiet and given.verbose:
        raise click.UsageError(
            "--quiet prints less and --verbose prints TFX's log. Leave one of them out."
        )
    from pipeline.run import runner
    from pipeline.run.outcome import RunOutcome

    try:
        outcome = runner.run(
            options.load(given),
            file=given.config,
            wait=given.wait,
            verbose=given.verbose,
            quiet=given.quiet,
            as_json=given.json,
        )
    except (Exception, KeyboardInterrupt) as error:
        if given.json:
            RunOutcome.failure(_exit_code(error), str(error)).print_json()
        raise
    if given.json:
        outcome.print_json()
    return outcome.code


def _exit_code(error: BaseException) -> int:
    if isinstance(error, ConfigError):
        return exit_codes.WRONG_INPUT
    return exit_codes.INTERRUPTED if isinstance(error, KeyboardInterrupt) else exit_codes.FAILED


@command("predict")
@options.model_value(type=options.FILE)
@options.data_value("rows: CSV, TFRecord, JSON lines (.gz, .zst, ...), Parquet, Arrow; - for stdin")
@options.source_option("by the file's name; csv for standard input", "jsonl")
@options.config_option("a pipeline's YAML whose data.csv describes the CSV, if detection fails")
@options.set_option("data.csv.encoding=cp1252")
@option("--keep", "NAMES", "columns of the input to write (`--keep id,date`); default: all")
@choice(
    "--on-error",
    ("fail", "skip"),
    "what to do with a row that the model cannot read: stop, or skip and count it",
    default="fail",
)
@options.output_option("CSV", "the rows with their predictions; default: show the first rows")
def predict(given: SimpleNamespace) -> int:
    """Run a pushed model on raw rows.

    Runs a pushed SavedModel on the raw rows of a file; the model normalises them. Writes
    `prediction` (the class, or a number in the label's unit) and, for classes,
    `probability_<class>`.
    """
    quiet()
    from pipeline.run import predict

    if given.config is None and given.set:
        raise ConfigError(f"--set {given.set[0]}: needs --config; add it.")
    config = options.load_if_given(given)
    return predict.predict(
        given.model,
        given.data,
        given.output,
        kind=given.source,
        keep=None if given.keep is None else [name for name in given.keep.split(",") if name],
        on_error=given.on_error,
        csv_options=None if config is None else config.data.csv,
    )


@command("schema")
def schema(given: SimpleNamespace) -> int:
    """Print the JSON Schema of the YAML.

    Describes every field with its unit and default, for completion and checks in editors.
    """
    from pipeline.config.config import json_schema

    print(json_schema())
    return 0
