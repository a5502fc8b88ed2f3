"""`python -m pipeline`: run a pipeline, predict with its model, describe the YAML and features."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import engines
from pipeline.config.config import SOURCES, ConfigError, json_schema
from pipeline.config.config_file import load_config

_EPILOG = """\
examples:
  python -m pipeline run --config examples/taxi/pipeline.yaml
  python -m pipeline run --config my.yaml --set training.global_batch_size=512
  python -m pipeline features suggest --input data.csv --label price --output features.yaml
  python -m pipeline features explain --config my.yaml
  python -m pipeline predict --model output/taxi/serving_model --input rows.csv
  python -m pipeline schema > pipeline.schema.json     # completion and checks in your editor
  python -m pipeline flink start                       # then: run ... --set beam.engine=flink
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs the command.

    Returns:
        The exit code: 0, 1 when a node failed, 2 when the input is wrong, 130 when interrupted,
        141 when the reader of its output went away.
    """
    arguments = _parser().parse_args(argv)
    try:
        return arguments.command(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`... | head`) has what it wants; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


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
    )
    run.add_argument("--config", required=True, type=Path, metavar="YAML", help="the pipeline")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="override a field of the YAML, e.g. training.epochs=3; may be repeated",
    )
    run.add_argument("--verbose", action="store_true", help="show TFX's log on the terminal, too")
    run.set_defaults(command=_run)

    predict = commands.add_parser(
        "predict",
        help="run a pushed model on raw rows",
        description=(
            "Runs the serving signature of a pushed SavedModel on the rows of a CSV file, as they "
            "came in: the model normalises them itself."
        ),
    )
    predict.add_argument(
        "--model",
        required=True,
        type=Path,
        help="a pushed model, or the folder of its numbered versions (the latest is taken)",
    )
    predict.add_argument(
        "--input", required=True, metavar="CSV", help="rows with a header line (.csv, .csv.gz)"
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
    engines.add_commands(commands)
    return parser


def _add_features_commands(commands: Any) -> None:
    suggest = commands.add_parser(
        "suggest",
        help="write a first features: section for a data file",
        description=(
            "Reads a data file and writes a features: section to start from: scales by skew and "
            "outliers, encoders by the number of different values, imputation by the share of "
            "missing ones, dates by their form. Comments say why, with the numbers measured by "
            "TFDV, and which columns are left out."
        ),
        epilog=(
            "example:\n  python -m pipeline features suggest --input houses.csv --label price "
            "--output features.yaml"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    suggest.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="CSV with a header line, Parquet or TFRecord of tf.Example; a glob of such files, or "
        "package://tfx/some/file.csv",
    )
    suggest.add_argument(
        "--source",
        choices=SOURCES,
        help="format of the file; default: by its name (.csv, .parquet, .tfrecord)",
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
    from pipeline.run.runner import add_import_paths, run

    add_import_paths(arguments.config)
    return run(load_config(arguments.config, arguments.set), verbose=arguments.verbose)


def _predict(arguments: argparse.Namespace) -> int:
    _quiet()
    from pipeline.run.predict import predict_csv

    return predict_csv(arguments.model, arguments.input, arguments.output)


def _suggest(arguments: argparse.Namespace) -> int:
    _quiet()
    from pipeline.features.features_suggest import suggest_file

    suggest_file(
        arguments.input,
        source=arguments.source,
        label=arguments.label,
        output=arguments.output,
        force=arguments.force,
    )
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    _quiet()
    from pipeline.features import features_explain

    if arguments.config:
        records = features_explain.run_of_config(load_config(arguments.config))
    else:
        records = features_explain.run_of_folder(arguments.run)
    features_explain.show(features_explain.explain(records), as_json=arguments.json)
    return 0


def _quiet() -> None:
    """TensorFlow's greeting is no news to somebody who wants an answer."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    # Beam says on import that a package for checksums lacks; it has others, which take longer.
    logging.getLogger().addFilter(lambda record: "crcmod" not in record.getMessage())


def _schema(arguments: argparse.Namespace) -> int:
    print(json_schema())
    return 0
