"""`python -m pipeline submit`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipeline.cli import options
from pipeline.cli.base import command, flag, list_exit_codes, option
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.platforms.cron import CronSchedule

_EXAMPLES = """\
Examples:
  export KF_PIPELINES_ENDPOINT=https://kubeflow.example/pipeline
  python -m pipeline submit --target kubeflow my.yaml --wait
  gcloud auth application-default login
  python -m pipeline submit --target vertex my.yaml
  python -m pipeline submit --spec my-kubeflow.yaml --run-name nightly
  python -m pipeline submit --target kubeflow my.yaml --schedule "0 3 * * *"

"""


@command("submit", epilog=_EXAMPLES + list_exit_codes(exit_codes.OF_SUBMIT))
@options.target_option("where it will run; default: what the file of --spec was compiled for")
@options.config_value(required=False)
@options.set_option("cluster.vertex.project=my-project")
@option(
    "--spec",
    "FILE",
    "send what `compile` wrote, as it is; with --config, project, region and service account are "
    "still those of the YAML",
    type=options.FILE,
)
@options.parameter_option
@option(
    "--experiment",
    "NAME",
    "Kubeflow: the experiment that groups the run, created if it does not exist (default: "
    "$KF_PIPELINES_DEFAULT_EXPERIMENT_NAME, or Default)",
)
@option(
    "--run-name",
    "NAME",
    "name on the platform's page; default: the pipeline's and the time. With --schedule: name of "
    "the schedule; default: the pipeline's",
)
@flag("--wait", "show its nodes until it ends; Ctrl-C leaves the run running")
@option(
    "--poll",
    "SECONDS",
    "time between two requests of --wait",
    type=options.Seconds(),
    default=10.0,
)
@options.timeout_option
@option(
    "--schedule",
    "CRON",
    "start a run at these times instead of now: minute, hour, day of the month, month, day of the "
    "week; `schedules` lists, pauses and deletes schedules",
)
@option(
    "--timezone",
    "ZONE",
    "Vertex: of --schedule, such as Europe/Berlin (default: UTC). Kubeflow has one time zone for "
    "the whole cluster",
)
def submit(given: SimpleNamespace) -> int:
    """Start a run on Kubeflow or Vertex.

    Compiles a pipeline as `compile` does, or takes a compiled file, sends it and starts a run.
    With --schedule the platform starts runs at given times. Host and credentials are found as by
    the platform's own client; image, service account, labels and cache are those of the YAML's
    `cluster:`.
    """
    quiet()
    from pipeline.targets.submit import Options, submit

    cron = _cron(given)
    run_options = Options(
        parameters=given.parameter,
        experiment=given.experiment,
        run_name=given.run_name,
        wait=given.wait,
        poll=given.poll,
        timeout=given.timeout,
        cron=cron,
    )
    return submit(given.target, options.load_if_given(given), given.spec, run_options)


def _cron(given: SimpleNamespace) -> CronSchedule | None:
    """Return when runs start; None: now."""
    from pipeline.platforms.cron import CronSchedule

    if given.schedule is None:
        if given.timezone is not None:
            raise ConfigError("--timezone is of --schedule: give both, or leave it out.")
        return None
    if given.wait:
        raise ConfigError(
            "--wait: there is no run to wait for with --schedule; leave one of the two out."
        )
    return CronSchedule.parse(given.schedule, given.timezone)
