"""`python -m pipeline schedules`: its arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.cli.arguments import positive_seconds
from pipeline.cli.configured import add_set, configuration
from pipeline.cli.quiet import quiet

_EPILOG = """\
examples:
  python -m pipeline submit --target kubeflow --config my.yaml --schedule "0 3 * * *"
  python -m pipeline schedules list --target kubeflow
  python -m pipeline schedules pause --target kubeflow my-pipeline
  python -m pipeline schedules delete --target vertex --config my.yaml my-pipeline
"""
_ACTIONS = {
    "list": "list all schedules",
    "pause": "stop a schedule from starting runs; runs that it has started continue",
    "resume": "let a paused schedule start runs again",
    "delete": "delete a schedule; on Kubeflow this ends a run of it that is in progress",
}


def add_command(commands: Any) -> None:
    """Add it to the command line."""
    schedules = commands.add_parser(
        "schedules",
        help="list, pause, resume and delete schedules on Kubeflow or Vertex",
        description="The schedules of a platform, which `submit --schedule` creates.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = schedules.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for action, meaning in _ACTIONS.items():
        parser = actions.add_parser(action, help=meaning, description=f"{meaning.capitalize()}.")
        if action != "list":
            parser.add_argument("name", metavar="NAME", help="its name or id, as `list` shows it")
        parser.add_argument(
            "--target", choices=("kubeflow", "vertex"), required=True, help="where it is"
        )
        parser.add_argument(
            "--config",
            type=Path,
            metavar="YAML",
            help="Vertex: its cluster.vertex names project and region; default: this machine's",
        )
        add_set(parser, "cluster.vertex.region=europe-west4")
        parser.add_argument(
            "--timeout",
            type=positive_seconds,
            default=30.0,
            metavar="SECONDS",
            help="that one request may take, from connecting to the last byte (default: 30)",
        )
        parser.set_defaults(command=_run, action=action)


def _run(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.targets import schedules

    config = configuration(arguments) if arguments.config is not None else None
    if arguments.action == "list":
        return schedules.show(arguments.target, config, arguments.timeout)
    return schedules.change(
        arguments.action, arguments.name, arguments.target, config, arguments.timeout
    )
