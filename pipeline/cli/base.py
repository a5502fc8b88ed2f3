"""What the commands share, on click: their classes, options and the types of values.

Nothing heavy is imported here or in the files of the commands, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import logging
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from rich_click import RichContext, RichHelpFormatter

from pipeline.common.program import program
from pipeline.common.sources import SOURCES

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig

# Whether a file exists and can be read is checked, with the fix, by what opens it.
FILE = click.Path(path_type=Path, readable=False)
FOLDER = click.Path(path_type=Path, readable=False, file_okay=False)
DATA = click.Path(readable=False)  # a text: it may also be a glob, package://... or -

_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": False,
    "rich_help_config": {
        "theme": "default-slim",
        "text_markup": None,  # brackets in our texts are literal
        "text_emojis": False,
        "padding_helptext_first_line": (0, 0, 1, 0),
        "options_table_help_sections": ["help", "required", "default"],
        "max_width": 100,
    },
}


class _Value(click.RichOption):
    """An option whose name can be left out: `run my.yaml`.

    Values without a name go to the options that were not given by name, in the order of the code.
    """

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the option for the line of usage."""
        usage = f"[{self.opts[0]}] {self.make_metavar(ctx)}"
        return [usage if self.required else f"[{usage}]"]

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, object], args: list[str]
    ) -> tuple[object, list[str]]:
        """Take the first value without a name if the option is not given."""
        if self.name not in opts and args:
            opts, args = {**opts, self.name: args[0]}, args[1:]
        return super().handle_parse_result(ctx, opts, args)


class _Command(click.RichCommand):
    """A command that prints its epilog as it is."""

    def format_epilog(self, ctx: RichContext, formatter: RichHelpFormatter) -> None:
        """Write examples and exit codes with their line breaks."""
        from rich.text import Text

        if self.epilog:
            formatter.write(Text("\n" + self.epilog.replace("python -m pipeline", program())))


class Group(click.RichGroup):
    """A command that has commands, listed in their order in the code."""

    command_class = _Command
    format_epilog = _Command.format_epilog

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their order in the code."""
        return list(self.commands)


command = functools.partial(click.command, cls=_Command)
group = functools.partial(click.group, cls=Group, context_settings=_SETTINGS)
option = click.option
flag = functools.partial(click.option, is_flag=True)
value = functools.partial(click.option, cls=_Value)
config_value = functools.partial(value, "--config", metavar="YAML", type=FILE, help="the pipeline")
data_value = functools.partial(value, "--data", metavar="FILE", type=DATA, required=True)
source_option = functools.partial(option, "--source", metavar="FORMAT")
output_option = functools.partial(option, "--output", type=FILE)
force_option = flag("--force", help="overwrite --output if it exists")
parameter_option = option(
    "--parameter",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="set a parameter of the compiled pipeline (a field in cluster.<target>.parameters), e.g. "
    "training.epochs=3; repeatable",
)
map_option = option(
    "--map",
    "maps",
    metavar="PREFIX=FOLDER",
    multiple=True,
    help="replace a remote folder, such as s3://bucket/data, with a local one; repeatable",
)


def set_option(example: str = "training.epochs=3"):
    """Return a decorator that adds `--set FIELD=VALUE`."""
    text = f"override a field of the YAML, e.g. {example}; repeatable"
    return option("--set", "overrides", metavar="FIELD=VALUE", multiple=True, help=text)


def target_option(help: str, names: Sequence[str] = ("kubeflow", "vertex"), **attributes: Any):
    """Return a decorator that adds `--target`."""
    metavar = "|".join(names)
    return option("--target", metavar=metavar, type=click.Choice(names), help=help, **attributes)


def source_help(default: str) -> dict[str, Any]:
    """Return type and help of `--source`."""
    return {"type": click.Choice(SOURCES), "help": f"{', '.join(SOURCES)}; default: {default}"}


def list_exit_codes(codes: Mapping[int, str]) -> str:
    """Return the lines of `--help` about exit codes and their meanings."""
    lines = [
        textwrap.fill(meaning, 78, initial_indent=f"  {code:>3}  ", subsequent_indent=" " * 7)
        for code, meaning in codes.items()
    ]
    return "\n".join(["Exit codes:", *lines, ""])


def load(file: Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Return the checked configuration of `--config` and `--set`.

    Adds the YAML's folder to the import path, for the functions that it names.
    """
    from pipeline.config.config_file import load_config
    from pipeline.run.runner import add_import_paths

    add_import_paths(file)
    return load_config(file, overrides)


def quiet() -> None:
    """Suppress messages on import that do not matter to a user of a short command."""
    import absl.logging  # here, so that `--help` is fast

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    # Beam warns that a package for checksums is missing; it falls back to slower ones.
    logging.getLogger().addFilter(lambda record: "crcmod" not in record.getMessage())
    # TFT warns about Keras 2 in its layers, which nothing here uses.
    absl.logging.get_absl_logger().addFilter(
        lambda record: "TF_USE_LEGACY_KERAS" not in record.getMessage()
    )
