"""`python -m pipeline report` and `runs list | diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import Group, command, flag, group, option, value
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.nearest_file import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

_EPILOG = """\
Examples:
  python -m pipeline runs my.yaml                        # all runs
  python -m pipeline runs output/taxi
  python -m pipeline runs diff 20261126-0910 latest --config my.yaml
"""
_REPORT_EPILOG = """\
Examples:
  python -m pipeline report my.yaml --open
  python -m pipeline report NormalizationValidator/report/5/report.json
"""
_LATEST = "latest"
_OF = "the pipeline's YAML, or its output folder"


@command("report", epilog=_REPORT_EPILOG)
@value("--config", "PATH", f"{_OF}, or a report.json of NormalizationValidator", type=options.FILE)
@option("--run", "NAME", "a run, as `runs` lists it, or the start of its name", default=_LATEST)
@flag("--open", "open the page in the browser", "open_page")
def report(given: SimpleNamespace) -> int:
    """Write the page of a run: report.html.

    `run` writes it at its end, too. It is one file that needs no network: verdict, nodes, data,
    features, training, evaluation, explanation, and how to repeat the run.

    Of a NormalizationValidator in another pipeline, or on a cluster, it shows the features: name
    its report.json, and normalization.html is written into the working directory.
    """
    quiet()
    from pipeline.page.index import write_index
    from pipeline.page.normalization_page import report_file, write_normalization_page
    from pipeline.page.page import write_page
    from pipeline.report.run_record import find_record
    from pipeline.report.short_path import short

    if normalization := report_file(given.config):
        if given.run != _LATEST:
            raise ConfigError(f"--run={given.run}: {normalization} is of one run; leave --run out")
        page = write_normalization_page(normalization)
    else:
        folder, _ = _places(given.config)
        page = write_page(find_record(folder, given.run))
        write_index(folder)
    print(short(page))
    # xdg-open ends at once, and only its code says that nothing was opened; macOS' would wait.
    if given.open_page and click.launch(str(page), wait=sys.platform == "linux") != 0:
        print(f"No browser could be opened. Open {page.resolve()} yourself.", file=sys.stderr)
        return exit_codes.FAILED
    return exit_codes.DONE


class _WithDefault(Group):
    """A group whose command is `list` where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after the group's name."""
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@group("runs", cls=_WithDefault, epilog=_EPILOG)
def runs() -> None:
    """List the runs of a pipeline, or compare two of them.

    `runs` without a command lists.
    """


@runs.command("list")
@value("--config", "PATH", _OF, type=options.FILE)
def list_(given: SimpleNamespace) -> int:
    """List all runs: start, result, time, metrics, what changed since the run before."""
    quiet()
    from pipeline.report.run_list import show_runs

    folder, metadata = _places(given.config)
    show_runs(folder, metadata, _console())
    return 0


@runs.command("diff")
@click.argument("before", metavar="A", help="a run, as `runs` lists it, or the start of its name")
@click.argument("after", metavar="[B]", help="another run (default: latest)", default=_LATEST)
@option("--config", "PATH", _OF, type=options.FILE, required=True)
def diff(given: SimpleNamespace) -> int:
    """Compare two runs: settings, rows, versions, metrics of each slice, time of each node."""
    quiet()
    from pipeline.report.run_list import show_difference
    from pipeline.report.run_record import find_record

    folder, _ = _places(given.config)
    show_difference(find_record(folder, given.before), find_record(folder, given.after), _console())
    return 0


def _places(given: Path) -> tuple[Path, Path]:
    """Return the output folder and the metadata store that a YAML names, or those in a folder."""
    if given.is_dir():
        return given, given / "metadata.sqlite"
    if not given.exists():
        raise ConfigError(
            f"{given}: no such file or folder. {did_you_mean(given)}Give the pipeline's YAML, or "
            "its output folder."
        )
    config = options.load(SimpleNamespace(config=given, set=()))
    return Path(config.output.folder), config.metadata_path


def _console() -> Console:
    from rich.console import Console

    from pipeline.run.runner import PIPE_WIDTH

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)
