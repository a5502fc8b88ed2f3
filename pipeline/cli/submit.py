"""`python -m pipeline submit`: its arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cli.arguments import positive_seconds
from pipeline.cli.configured import add_set, configuration
from pipeline.cli.positionals import accept_positionals
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes

if TYPE_CHECKING:
    from pipeline.targets.cron import CronSchedule

_EPILOG = """\
examples:
  export KF_PIPELINES_ENDPOINT=https://kubeflow.example/pipeline
  python -m pipeline submit --target kubeflow --config my.yaml --wait
  gcloud auth application-default login
  python -m pipeline submit --target vertex --config my.yaml --set cluster.vertex.project=my-project
  python -m pipeline submit --spec my-kubeflow.yaml --run-name nightly   # what was replayed
  python -m pipeline submit --target kubeflow --config my.yaml --schedule "0 3 * * *"

exit codes:
"""


def add_command(commands: Any) -> None:
    """Add it to the command line."""
    submit = commands.add_parser(
        "submit",
        help="start a run on Kubeflow or Vertex",
        description=(
            "Compiles a pipeline as `compile` does, or takes a compiled file, sends it and starts "
            "a run; with --schedule it lets the platform start a run at given times. Host and "
            "credentials come from where the platform's own client finds them; image, service "
            "account, labels and cache are those of the YAML's `cluster:`."
        ),
        epilog=_EPILOG + "\n".join(f"  {c:>3}  {m}" for c, m in exit_codes.OF_SUBMIT.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    submit.add_argument(
        "--target",
        choices=("kubeflow", "vertex"),
        help="where it is to run; with --spec known from the file",
    )
    config = submit.add_argument("--config", type=Path, metavar="YAML", help="the pipeline")
    accept_positionals(submit, config, required=False)
    add_set(submit, "cluster.vertex.project=my-project")
    submit.add_argument(
        "--spec",
        type=Path,
        metavar="FILE",
        help="what `compile` wrote, sent as it is; with --config, project, region and service "
        "account are still those of the YAML",
    )
    submit.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the pipeline, such as training.epochs=3 for a field of the YAML that "
        "cluster.<target>.parameters lists; repeatable",
    )
    submit.add_argument(
        "--experiment",
        metavar="NAME",
        help="Kubeflow: what the run is grouped under, made if it is not there (default: "
        "$KF_PIPELINES_DEFAULT_EXPERIMENT_NAME, or Default)",
    )
    submit.add_argument(
        "--run-name",
        metavar="NAME",
        help="what its page shows; default: the pipeline's, and when. With --schedule the name of "
        "the schedule; default: the pipeline's",
    )
    submit.add_argument(
        "--wait", action="store_true", help="show its nodes until it ends; Ctrl-C leaves it running"
    )
    submit.add_argument(
        "--poll",
        type=positive_seconds,
        default=10.0,
        metavar="SECONDS",
        help="between two requests of --wait (default: 10)",
    )
    submit.add_argument(
        "--timeout",
        type=positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="that one request may take, from connecting to the last byte (default: 30)",
    )
    submit.add_argument(
        "--schedule",
        metavar="CRON",
        help="start a run at these times in place of now: minute, hour, day of the month, month, "
        "day of the week; `python -m pipeline schedules` lists, pauses and deletes schedules",
    )
    submit.add_argument(
        "--timezone",
        metavar="ZONE",
        help="Vertex: of --schedule, such as Europe/Berlin (default: UTC). Kubeflow has one for "
        "the whole cluster",
    )
    submit.set_defaults(command=_submit)


def _submit(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.targets.submit import Options, submit

    cron = _cron(arguments)
    config = configuration(arguments) if arguments.config is not None else None
    options = Options(
        parameters=arguments.parameter,
        experiment=arguments.experiment,
        run_name=arguments.run_name,
        wait=arguments.wait,
        poll=arguments.poll,
        timeout=arguments.timeout,
        cron=cron,
    )
    return submit(arguments.target, config, arguments.spec, options)


def _cron(arguments: argparse.Namespace) -> CronSchedule | None:
    """Return when runs start; None: now."""
    from pipeline.common.errors import ConfigError
    from pipeline.targets.cron import CronSchedule

    if arguments.schedule is None:
        if arguments.timezone is not None:
            raise ConfigError("--timezone is of --schedule: give both, or leave it out.")
        return None
    if arguments.wait:
        raise ConfigError(
            "--wait: there is no run to wait for with --schedule; leave one of the two out."
        )
    return CronSchedule.parse(arguments.schedule, arguments.timezone)
