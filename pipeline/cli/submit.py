"""`python -m pipeline submit`."""

from __future__ import annotations

from types import SimpleNamespace

from pipeline.cli import options
from pipeline.cli.base import command, flag, list_exit_codes, option
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes

_EXAMPLES = """\
Examples:
  export KF_PIPELINES_ENDPOINT=https://kubeflow.example/pipeline
  python -m pipeline submit --target kubeflow my.yaml --wait
  gcloud auth application-default login
  python -m pipeline submit --target vertex my.yaml
  python -m pipeline submit --spec my-kubeflow.yaml --run-name nightly
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
    "name of the run on the platform; default: the pipeline's name and the time",
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
def submit(given: SimpleNamespace) -> int:
    """Start a run on Kubeflow or Vertex.

    Compiles a pipeline, or reads a compiled file, and starts a run of it. Host and credentials are
    those of the platform's own client. Image, service account, labels and cache come from
    `cluster:` of the YAML.
    """
    quiet()
    from pipeline.targets.submit import Options, submit

    run_options = Options(
        parameters=given.parameter,
        experiment=given.experiment,
        run_name=given.run_name,
        wait=given.wait,
        poll=given.poll,
        timeout=given.timeout,
    )
    return submit(given.target, options.load_if_given(given), given.spec, run_options)
