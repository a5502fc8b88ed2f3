"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import rich_click as click

from pipeline.cli.base import Decorator, choice, flag, option, value
from pipeline.common.sources import SOURCES

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig

# Whether a file exists and can be read is checked, with the fix, by what opens it.
FILE = click.Path(path_type=Path, readable=False)
FOLDER = click.Path(path_type=Path, readable=False, file_okay=False)
DATA = click.Path(readable=False)  # a text: it may also be a glob, package://... or -

TARGETS = ("kubeflow", "vertex")
SERVING_TARGETS = ("kserve", "vertex")


class Seconds(click.ParamType):
    """A time in seconds above 0."""

    name = "seconds"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; threads cannot wait for longer than some years, so at most a day."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not (seconds > 0 and math.isfinite(seconds)):
            self.fail(f"{value}: give a number of seconds above 0", param, ctx)
        return min(seconds, 86_400.0)


def config_value(**attributes: Any) -> Decorator:
    """Add `[--config] YAML`."""
    return value("--config", "YAML", "the pipeline", type=FILE, **attributes)


def config_option(help: str) -> Decorator:
    """Add `--config YAML` for a command whose first value is another one."""
    return option("--config", "YAML", help, type=FILE)


def set_option(example: str = "training.epochs=3") -> Decorator:
    """Add `--set FIELD=VALUE`."""
    text = f"override a field of the YAML, e.g. {example}; repeatable"
    return option("--set", "FIELD=VALUE", text, multiple=True)


def model_value(**attributes: Any) -> Decorator:
    """Add `[--model] FOLDER`."""
    text = "a pushed model, or the folder of its numbered versions (default: the latest)"
    return value("--model", "FOLDER", text, **attributes)


def data_value(help: str) -> Decorator:
    """Add `[--data] FILE`, which was called `--input` before."""
    return value("--data", "FILE", help, "--input", "data", type=DATA)


def source_option(default: str, *more: str) -> Decorator:
    """Add `--source`.

    Args:
        default: The default, for `--help`.
        *more: Formats in addition to those that a pipeline reads.
    """
    sources = (*SOURCES, *more)
    text = f"{', '.join(sources)}; default: {default}"
    return option("--source", "FORMAT", text, type=click.Choice(sources))


def output_option(metavar: str, help: str, type: click.Path = FILE) -> Decorator:
    """Add `--output`."""
    return option("--output", metavar, help, type=type)


def target_option(help: str, names: tuple[str, ...] = TARGETS, **attributes: Any) -> Decorator:
    """Add `--target`."""
    return choice("--target", names, help, **attributes)


force_option = flag("--force", "overwrite --output if it exists")
timeout_option = option(
    "--timeout",
    "SECONDS",
    "time limit for connecting and for each wait for the server",
    type=Seconds(),
    default=30.0,
)
parameter_option = option(
    "--parameter",
    "NAME=VALUE",
    "set a parameter of the compiled pipeline (a field in cluster.<target>.parameters), e.g. "
    "training.epochs=3; repeatable",
    multiple=True,
)
map_option = option(
    "--map",
    "PREFIX=FOLDER",
    "replace a remote folder, such as s3://bucket/data, with a local one; repeatable",
    multiple=True,
)


def load(given: SimpleNamespace) -> PipelineConfig:
    """Return the checked configuration of `--config` and `--set`.

    Adds the YAML's folder to the import path, for the functions that it names.

    Raises:
        ConfigError: The configuration is wrong.
    """
    from pipeline.config.config_file import load_config
    from pipeline.run.runner import add_import_paths

    add_import_paths(given.config)
    return load_config(given.config, given.set)


def load_if_given(given: SimpleNamespace) -> PipelineConfig | None:
    """Return the checked configuration, or None without `--config`."""
    return None if given.config is None else load(given)


def single_choice(given: SimpleNamespace, first: str, second: str) -> None:
    """Check that one of two options is given.

    Raises:
        UsageError: Both are given, or none.
    """
    if bool(getattr(given, first)) == bool(getattr(given, second)):
        raise click.UsageError(f"Give one of --{first} and --{second}.")
