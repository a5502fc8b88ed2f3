"""`python -m pipeline` and `tfx-largebatch`: the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import rich_click as click
from click.exceptions import Exit, NoArgsIsHelpError

from pipeline.cli import cluster, local
from pipeline.cli.base import group
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.program import program
from pipeline.run.process import interrupts_kept

_EPILOG = """\
Examples:
  python -m pipeline init houses.csv --label price       # writes houses.yaml
  python -m pipeline run houses.yaml
  python -m pipeline run my.yaml --set training.global_batch_size=512
  python -m pipeline report my.yaml --open               # the page of the latest run
  python -m pipeline runs my.yaml                        # all runs
  python -m pipeline profile my.yaml
  python -m pipeline predict output/taxi/serving_model rows.csv
  python -m pipeline schema > pipeline.schema.json       # for your editor
  python -m pipeline image build --tag registry.example/my-pipeline:1.0
  python -m pipeline compile --target kubeflow my.yaml
  python -m pipeline replay my-kubeflow.yaml --map s3://bucket/data=./data
  python -m pipeline submit --target kubeflow my.yaml --wait
"""

_COMMANDS = {
    "On this machine": (
        *(local.init, local.run, local.report, local.runs, local.predict, local.profile),
        local.schema,
    ),
    "On a cluster": (
        *(cluster.image, cluster.compile_, cluster.replay, cluster.submit, cluster.serve_manifest),
    ),
}


@group(epilog=_EPILOG)
def cli() -> None:
    """TFX pipelines for large-batch training: from raw data to a pushed model."""


for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        _command.panel = _panel
        cli.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run the command; return the code, see `exit_codes`."""
    try:
        with interrupts_kept():
            code = _run(list(sys.argv[1:] if argv is None else argv))
            if sys.stdout is not None:
                sys.stdout.flush()  # here, so that a reader that is gone counts
            return code
    except ConfigError as error:
        print(error, file=sys.stderr)
        return exit_codes.WRONG_INPUT
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader (`... | head`) has what it wants; what is still buffered has nowhere to go.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.READER_GONE


def _run(arguments: list[str]) -> int:
    """Run a command without click's own handling of Ctrl-C and closed pipes."""
    try:
        with cli.make_context(program(), arguments) as context:
            return cli.invoke(context)
    except Exit as end:  # after --help
        return end.exit_code
    except click.ClickException as error:
        _show(error)
        return error.exit_code


def _show(error: click.ClickException) -> None:
    """Print an error of the command line, and the usage of its command."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or isinstance(error, NoArgsIsHelpError):
        error.show(sys.stderr)
        return
    hint = ""
    if isinstance(error, click.NoSuchOption) and isinstance(context.command, click.Group):
        hint = " Options of a command follow its name."
    elif isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        hint = " A file name that begins with - needs ./ or a word -- before it."
    command = context.command_path
    usage = " ".join(context.command.collect_usage_pieces(context))
    print(
        f"{command}: {error.format_message()}{hint}\nUsage: {command} {usage}\n"
        f"Try `{command} --help`.",
        file=sys.stderr,
    )
