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
    "send this file of `compile` unchanged; with --config, project, region and service account "
    "come from the YAML",
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
    "name of the run on the platform; default: the pipeline's name and the time. With --schedule: "
    "name of the schedule; default: the pipeline's name",
)
@flag("--wait", "wait until the run ends, and show its nodes; Ctrl-C does not stop the run")
@option(
    "--poll",
    "SECONDS",
    "with --wait: time between two requests",
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
    "Vertex: time zone of --schedule, such as Europe/Berlin (default: UTC). Kubeflow uses one time "
    "zone for the whole cluster",
)
def submit(given: SimpleNamespace) -> int:
    """Start a run on Kubeflow or Vertex.

    Compiles a pipeline, or reads a compiled file, and starts a run of it. With --schedule the
    platform starts runs at given times. Host and credentials are those of the platform's own
    client. Image, service account, labels and cache come from `cluster:` of the YAML.
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
            raise ConfigError("--timezone needs --schedule; add it, or remove --timezone.")
        return None
    if given.wait:
        raise ConfigError(
            "--wait: with --schedule there is no run to wait for; remove one of them."
        )
    return CronSchedule.parse(given.schedule, given.timezone)
