"""`python -m pipeline`: run a pipeline, predict with its model, describe the YAML and features.

Only argparse is imported here: `--help` answers at once. A command imports what it needs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import engines, image, schedules, serving, submit, targets
from pipeline.cli.configured import add_set, configuration
from pipeline.cli.positionals import accept_positionals, parse
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.program import program, shell_argument
from pipeline.common.sources import SOURCES
from pipeline.common.whole_files import message_stream
from pipeline.run.interrupts import interrupts_kept

_EPILOG = """\
examples:
  python -m pipeline init houses.csv --label price          # writes houses.yaml
  python -m pipeline run houses.yaml
  python -m pipeline run my.yaml --set training.global_batch_size=512
  python -m pipeline features suggest --data data.csv --label price --output features.yaml
  python -m pipeline features explain --config my.yaml
  python -m pipeline predict --model output/taxi/serving_model --data rows.csv
  python -m pipeline schema > pipeline.schema.json     # completion and checks in your editor
  python -m pipeline image build --tag registry.example/my-pipeline:1.0 --with ./my_package
  python -m pipeline compile --target kubeflow --config my.yaml
  python -m pipeline replay --spec my-kubeflow.yaml --map s3://bucket/data=./data
  python -m pipeline submit --target kubeflow --config my.yaml --wait
  python -m pipeline check-serving --model output/taxi/serving_model --data rows.csv
  python -m pipeline flink start                       # then: run ... --set beam.engine=flink
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs the command.

    Returns:
        The exit code: see `pipeline.common.exit_codes`.
    """
    arguments = parse(_parser(), argv)
    try:
        with interrupts_kept():
            return arguments.command(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return exit_codes.WRONG_INPUT
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader (`... | head`) has what it wants; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.READER_GONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline",
        description="TFX pipelines for large-batch training: from raw data to a pushed model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a pipeline on this machine",
        description=(
            "Runs every node of the pipeline on this machine, with progress on the way and a "
            "summary at the end. Nodes whose inputs, settings and code have not changed since an "
            "earlier run are taken from the cache."
        ),
        epilog=_exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config = run.add_argument("--config", type=Path, metavar="YAML", help="the pipeline")
    accept_positionals(run, config)
    add_set(run)
    run.add_argument("--verbose", action="store_true", help="show TFX's log on the terminal, too")
    run.add_argument(
        "--wait",
        action="store_true",
        help="wait for another run in the same output folder to end; without it, be refused",
    )
    run.set_defaults(command=_run)

    init = commands.add_parser(
        "init",
        help="write a whole first YAML for a data file",
        description=(
            "Reads a data file and writes a YAML that `run` takes without an edit: features by "
            "statistics, the label's kind, a training that suits the number of rows, and "
            "thresholds that a model better than a constant passes. Its comments say why."
        ),
        epilog="example:\n  python -m pipeline init --data houses.csv --label price",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data(init)
    init.add_argument(
        "--label",
        metavar="NAME",
        help="the column to predict; default: one named target, class, ..., else the last",
    )
    init.add_argument(
        "--source",
        choices=SOURCES,
        help="format of the file; default: by its name (.csv, .parquet, .feather, ...)",
    )
    init.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of CSV names the columns (--no-header: they are column_1, "
        "column_2, ...); default: it does, and one that looks like data is an error",
    )
    init.add_argument(
        "--output", type=Path, metavar="YAML", help="file to write; default: the data's name, here"
    )
    init.add_argument(
        "--force", action="store_true", help="overwrite --output where it is there already"
    )
    init.set_defaults(command=_init)

    predict = commands.add_parser(
        "predict",
        help="run a pushed model on raw rows",
        description=(
            "Runs the serving signature of a pushed SavedModel on the rows of a file, as they came "
            "in: the model normalises them itself. Writes `prediction` (the class's name, or the "
            "number in the label's own unit) and `probability_<class>`."
        ),
    )
    model = predict.add_argument(
        "--model",
        type=Path,
        help="a pushed model, or the folder of its numbered versions (the latest is taken)",
    )
    data = predict.add_argument(
        "--data",
        "--input",
        metavar="FILE",
        help="rows: CSV, TFRecord, JSON lines (.gz, .zip, ... too), Parquet, Arrow; - for stdin",
    )
    accept_positionals(predict, model, data)
    predict.add_argument(
        "--source",
        choices=(*SOURCES, "jsonl"),
        help="format of --data; default: by its name, and csv for standard input",
    )
    predict.add_argument(
        "--config",
        type=Path,
        metavar="YAML",
        help="the pipeline whose data.csv says how CSV is written, where it is not found by itself",
    )
    add_set(predict, example="data.csv.encoding=cp1252")
    predict.add_argument(
        "--keep",
        metavar="NAMES",
        help="columns of the input to write (`--keep id,date`); default: all",
    )
    predict.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="a row that the model cannot take ends it (fail), or is left out and counted (skip)",
    )
    predict.add_argument(
        "--output",
        type=Path,
        metavar="CSV",
        help="the rows with their predictions; without it, the first rows are shown",
    )
    predict.set_defaults(command=_predict)

    schema = commands.add_parser(
        "schema",
        help="print the JSON Schema of the YAML",
        description="Prints the JSON Schema of the YAML: every field with its unit and default.",
    )
    schema.set_defaults(command=_schema)

    features = commands.add_parser(
        "features",
        help="suggest features for a data file, explain those of a run",
        description="The features: section of the YAML: a first one for your data, and what a run "
        "made of it.",
    )
    _add_features_commands(
        features.add_subparsers(title="commands", required=True, metavar="COMMAND")
    )
    image.add_commands(commands)
    targets.add_commands(commands)
    submit.add_command(commands)
    schedules.add_command(commands)
    serving.add_commands(commands)
    engines.add_commands(commands)
    return parser


def _add_data(command: argparse.ArgumentParser) -> None:
    data = command.add_argument(
        "--data",
        "--input",
        metavar="FILE",
        help="CSV with a header line, Parquet, Arrow or TFRecord of tf.Example; a glob of such "
        "files, or package://tfx/some/file.csv",
    )
    accept_positionals(command, data)


def _exit_codes() -> str:
    lines = [f"  {code:>3}  {meaning}" for code, meaning in exit_codes.OF_A_RUN.items()]
    return "\n".join(["exit codes:", *lines])


def _add_features_commands(commands: Any) -> None:
    suggest = commands.add_parser(
        "suggest",
        help="write a first features: section for a data file",
        description=(
            "Reads a data file and writes a features: section to start from: scales by skew and "
            "outliers, encoders by the number of different values, imputation by the share of "
            "missing ones, dates by their form. Comments say why, with the measured numbers, and "
            "which columns are left out."
        ),
        epilog=(
            "example:\n  python -m pipeline features suggest --data houses.csv --label price "
            "--output features.yaml"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_data(suggest)
    suggest.add_argument(
        "--source",
        choices=SOURCES,
        help="format of the file; default: by its name (.csv, .parquet, .feather, ...)",
    )
    suggest.add_argument("--label", metavar="NAME", help="the column to predict")
    suggest.add_argument(
        "--output", type=Path, metavar="YAML", help="file to write; default: standard output"
    )
    suggest.add_argument(
        "--force", action="store_true", help="overwrite --output where it is there already"
    )
    suggest.set_defaults(command=_suggest)

    explain = commands.add_parser(
        "explain",
        help="print each column's chain with its fitted numbers, for a finished run",
        description=(
            "Prints, for the latest run, what became of each column: share of missing values, "
            "clip bounds, imputed value, mean, scale, quantiles, vocabulary size, as they are in "
            "the run's transform graph and statistics."
        ),
        epilog="example:\n  python -m pipeline features explain --run output/taxi",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run = explain.add_mutually_exclusive_group(required=True)
    run.add_argument("--config", type=Path, metavar="YAML", help="the pipeline that ran")
    run.add_argument("--run", type=Path, metavar="FOLDER", help="the output.folder of a run")
    explain.add_argument("--json", action="store_true", help="print JSON, every number in full")
    explain.set_defaults(command=_explain)


def _run(arguments: argparse.Namespace) -> int:
    from pipeline.run.runner import run

    return run(
        configuration(arguments),
        file=arguments.config,
        wait=arguments.wait,
        verbose=arguments.verbose,
    )


def _predict(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.run.predict import predict

    if arguments.config is None and arguments.set:
        raise ConfigError(f"--set {arguments.set[0]}: needs --config, whose field it overrides.")
    options = None if arguments.config is None else configuration(arguments).data.csv
    return predict(
        arguments.model,
        arguments.data,
        arguments.output,
        kind=arguments.source,
        keep=None if arguments.keep is None else [n for n in arguments.keep.split(",") if n],
        on_error=arguments.on_error,
        csv_options=options,
    )


def _init(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.features.first_config import init_file
    from pipeline.features.left_out import show_left_out
    from pipeline.preflight.preflight import check_data

    written = init_file(
        arguments.data,
        label=arguments.label,
        source=arguments.source,
        header=arguments.header,
        output=arguments.output,
        force=arguments.force,
        check=check_data,
    )
    stream = message_stream(written.path)
    for warning in written.warnings:
        print(f"note: {warning}", file=stream)
    show_left_out(written.left_out, stream)
    for sentence in written.suspicious:
        print(f"warning: {sentence}", file=stream)
    print(
        f"{written.path}: predicts {written.label} ({written.kind}). Read its comments, then\n"
        f"  {program()} run --config {shell_argument(written.path)}",
        file=stream,
    )
    return 0


def _suggest(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.features.features_suggest import suggest_file

    suggest_file(
        arguments.data,
        source=arguments.source,
        label=arguments.label,
        output=arguments.output,
        force=arguments.force,
    )
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.config.config_file import load_config
    from pipeline.features import features_explain

    if arguments.config:
        records = features_explain.run_of_config(load_config(arguments.config))
    else:
        records = features_explain.run_of_folder(arguments.run)
    features_explain.show(features_explain.explain_columns(records), as_json=arguments.json)
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from pipeline.config.config import json_schema

    print(json_schema())
    return 0
