"""`python -m pipeline`: run a pipeline, predict with a pushed model, describe the YAML."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from pipeline.config import ConfigError, json_schema, load_config

_EPILOG = """\
examples:
  python -m pipeline run --config examples/taxi/pipeline.yaml
  python -m pipeline run --config my.yaml --set training.global_batch_size=512
  python -m pipeline predict --model output/taxi/serving_model --input rows.csv
  python -m pipeline schema > pipeline.schema.json     # completion and checks in your editor
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
    predict.add_argument("--input", required=True, metavar="CSV", help="rows with a header line")
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
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from pipeline.run import add_import_paths, run

    add_import_paths(arguments.config)
    return run(load_config(arguments.config, arguments.set), verbose=arguments.verbose)


def _predict(arguments: argparse.Namespace) -> int:
    # TensorFlow's greeting is no news to somebody who wants predictions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    from pipeline.predict import predict_csv

    return predict_csv(arguments.model, arguments.input, arguments.output)


def _schema(arguments: argparse.Namespace) -> int:
    print(json_schema())
    return 0
