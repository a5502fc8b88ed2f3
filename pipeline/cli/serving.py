"""`python -m pipeline check-serving` and `serve-manifest`: their arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.cli.quiet import quiet
from pipeline.common.sources import SOURCES

SERVING_TARGETS = ("kserve", "vertex")


def add_commands(commands: Any) -> None:
    """Add them to the command line."""
    _add_check(commands)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check-serving",
        help="send real rows to a model as its server takes them",
        description=(
            "Loads a pushed model as tensorflow_model_server does, in a process without this "
            "project's packages, sends rows as JSON to each signature that clients of the target "
            "call, and compares the answers with those of `predict`. With --url the rows go to a "
            "server that runs. Ends with 1 where an answer is an error or differs."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline check-serving --model out/serving_model --input rows.csv\n"
            "  python -m pipeline check-serving --model out/serving_model --input rows.csv "
            "--url http://localhost:8501/v1/models/taxi"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "--model",
        required=True,
        metavar="FOLDER",
        help="a pushed model, or the folder of its numbered versions (the latest is taken)",
    )
    check.add_argument(
        "--input", required=True, metavar="FILE", help="rows, in any format that `predict` reads"
    )
    check.add_argument(
        "--source",
        choices=(*SOURCES, "jsonl"),
        help="format of --input; default: by its name",
    )
    check.add_argument(
        "--config",
        type=Path,
        metavar="YAML",
        help="the pipeline whose data.csv says how CSV is written",
    )
    check.add_argument(
        "--target",
        choices=SERVING_TARGETS,
        default="kserve",
        help="what is to serve it: kserve calls serving_default and raw (so does "
        "tensorflow_model_server), vertex serving_default (default: kserve)",
    )
    check.add_argument(
        "--rows",
        type=positive,
        default=100,
        metavar="COUNT",
        help="how many rows are sent (default: 100)",
    )
    check.add_argument(
        "--url",
        metavar="URL",
        help="a model on a running server: http://HOST:PORT/v1/models/NAME",
    )
    check.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="a Python with the server's version of TensorFlow, which then loads the model",
    )
    check.set_defaults(command=_check)


def positive(text: str) -> int:
    """Return a number of at least 1."""
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of at least 1")
    return count


def _check(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.serving.check import CheckOptions, check_serving

    csv_options = None
    if arguments.config is not None:
        from pipeline.config.config_file import load_config

        csv_options = load_config(arguments.config).data.csv
    options = CheckOptions(
        target=arguments.target,
        rows=arguments.rows,
        url=arguments.url,
        python=arguments.python,
        kind=arguments.source,
        csv_options=csv_options,
    )
    return check_serving(arguments.model, arguments.input, options)
