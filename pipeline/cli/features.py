"""`python -m pipeline init` and `features suggest | explain`."""

from __future__ import annotations

from types import SimpleNamespace

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import command, flag, group, option
from pipeline.cli.quiet import quiet
from pipeline.common.program import program, shell_argument
from shared_core.atomic_files import message_stream

_data = options.data_value(
    "CSV with a header line, Parquet, Arrow or TFRecord of tf.Example; a glob of such files, or "
    "package://tfx/some/file.csv"
)
_source = options.source_option("by the file's name (.csv, .parquet, .feather, ...)")
_label = "the column to predict"


@command("init", epilog="Example:\n  python -m pipeline init houses.csv --label price\n")
@_data
@option(
    "--label",
    "NAME",
    f"{_label}; default: a column named target, class, ..., else the last usable one",
)
@_source
@click.option(
    "--header/--no-header",
    default=None,
    help="whether the first line of CSV files names the columns (if not: column_1, column_2, ...); "
    "default: it does, and a first line that looks like data is an error",
)
@options.output_option("YAML", "file to write; default: <name of the data>.yaml in this folder")
@options.force_option
def init(given: SimpleNamespace) -> int:
    """Write a complete first YAML for a data file.

    Reads a data file and writes a YAML that `run` accepts without an edit: features, label,
    training and evaluation, chosen from statistics of the columns. Comments give the reasons.
    """
    quiet()
    from pipeline.features.features_suggest import show_left_out
    from pipeline.features.first_config import init_file
    from pipeline.preflight.preflight import check_data

    written = init_file(
        given.data,
        label=given.label,
        source=given.source,
        header=given.header,
        output=given.output,
        force=given.force,
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


@group("features")
def features() -> None:
    """Suggest features for a data file, explain those of a run."""


_SUGGEST = """\
Example:
  python -m pipeline features suggest houses.csv --label price \\
      --output features.yaml
"""


@features.command("suggest", epilog=_SUGGEST)
@_data
@_source
@option("--label", "NAME", _label)
@options.output_option("YAML", "file to write; default: standard output")
@options.force_option
def suggest(given: SimpleNamespace) -> int:
    """Write a first `features:` section for a data file.

    Chooses scalers by skew and outliers, encoders by the number of distinct values, imputation by
    the share of missing values, and dates by their format. Comments give the reasons with the
    measured numbers, and list the columns that are left out.
    """
    quiet()
    from pipeline.features.features_suggest import suggest_file

    suggest_file(
        given.data,
        source=given.source,
        label=given.label,
        output=given.output,
        force=given.force,
    )
    return 0


_EXPLAIN = "Example:\n  python -m pipeline features explain --run output/taxi\n"


@features.command("explain", epilog=_EXPLAIN)
@options.config_option("the pipeline that ran")
@option("--run", "FOLDER", "the output.folder of a run", type=options.FOLDER)
@flag("--json", "print JSON with all digits")
def explain(given: SimpleNamespace) -> int:
    """Print the steps of each column with their fitted numbers, for a finished run.

    Shows, for the latest run: share of missing values, clip bounds, imputed value, mean, scale,
    quantiles, vocabulary size.
    """
    options.single_choice(given, "config", "run")
    quiet()
    from pipeline.config.config_file import load_config
    from pipeline.features import features_explain

    if given.config is not None:
        records = features_explain.run_of_config(load_config(given.config))
    else:
        records = features_explain.run_of_folder(given.run)
    features_explain.show(features_explain.explain_columns(records), as_json=given.json)
    return 0
