"""`python -m pipeline schedules list | pause | resume | delete`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Literal

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import group
from pipeline.cli.quiet import quiet

_EPILOG = """\
Examples:
  python -m pipeline submit --target kubeflow my.yaml --schedule "0 3 * * *"
  python -m pipeline schedules list --target kubeflow
  python -m pipeline schedules pause --target kubeflow my-pipeline
  python -m pipeline schedules delete --target vertex --config my.yaml my-pipeline
"""
_ACTIONS: dict[Literal["list", "pause", "resume", "delete"], str] = {
    "list": "List all schedules.",
    "pause": "Stop a schedule from starting runs; runs that it has started continue.",
    "resume": "Let a paused schedule start runs again.",
    "delete": "Delete a schedule; on Kubeflow this stops its run that is in progress.",
}


@group("schedules", epilog=_EPILOG)
def schedules() -> None:
    """List, pause, resume and delete schedules on Kubeflow or Vertex.

    `submit --schedule` creates them.
    """


def _add(action: Literal["list", "pause", "resume", "delete"], text: str) -> None:
    @options.target_option("the platform of the schedule", required=True)
    @options.config_option("Vertex: a YAML with project and region; default: your gcloud settings")
    @options.set_option("cluster.vertex.region=europe-west4")
    @options.timeout_option
    def run(given: SimpleNamespace) -> int:
        quiet()
        from pipeline.targets.schedules import change, show

        config = options.load_if_given(given)
        if action == "list":
            return show(given.target, config, given.timeout)
        return change(action, given.name, given.target, config, given.timeout)

    if action != "list":
        run = click.argument("name", metavar="NAME", help="name or id, as `list` shows it")(run)
    schedules.command(action, help=text)(run)


for _action, _text in _ACTIONS.items():
    _add(_action, _text)
