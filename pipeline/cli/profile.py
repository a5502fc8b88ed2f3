"""`python -m pipeline profile`."""

from __future__ import annotations

from types import SimpleNamespace

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import command, option
from pipeline.cli.quiet import quiet

_EXAMPLE = "Example:\n  python -m pipeline profile my.yaml --steps 20\n"


@command("profile", epilog=_EXAMPLE)
@options.config_value()
@options.set_option("training.micro_batch_size=64")
@option(
    "--steps",
    "NUMBER",
    "optimizer steps to profile, after those that compile the graph",
    type=click.IntRange(min=1, max=1000),
    default=50,
)
def profile(given: SimpleNamespace) -> int:
    """Show where the time of a training step goes.

    Takes optimizer steps of the configured training on the transformed rows of the latest run, and
    writes nothing. Prints the time of reading, forward, backward, reduction over replicas, update,
    host overhead and idle, rows per second, peak memory, the ten most expensive operations with
    their layers, and a hint per bottleneck.
    """
    quiet()
    from pipeline.run.profile import profile

    print(profile(options.load(given), steps=given.steps))
    return 0
