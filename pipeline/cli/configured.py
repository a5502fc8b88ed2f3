"""`--set` of a command, and the configuration that it and `--config` name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig


def add_set(parser: argparse.ArgumentParser, example: str = "training.epochs=3") -> None:
    """Adds `--set FIELD=VALUE`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help=f"override a field of the YAML, e.g. {example}; may be repeated",
    )


def configuration(arguments: argparse.Namespace) -> PipelineConfig:
    """Returns the checked configuration of `--config` and `--set`.

    What is beside the YAML can be imported from then on: it names functions by their paths.

    Raises:
        ConfigError: it is wrong.
    """
    from pipeline.config.config_file import load_config
    from pipeline.run.runner import add_import_paths

    add_import_paths(arguments.config)
    return load_config(arguments.config, arguments.set)
