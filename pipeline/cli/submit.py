"""`python -m pipeline submit`: its arguments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.cli.configured import add_set, configuration
from pipeline.cli.quiet import quiet
from pipeline.common import exit_codes

_EPILOG = """\
examples:
  export KF_PIPELINES_ENDPOINT=https://kubeflow.example/pipeline
  python -m pipeline submit --target kubeflow --config my.yaml --wait
  gcloud auth application-default login
  python -m pipeline submit --target vertex --config my.yaml --set cluster.vertex.project=mine
  python -m pipeline submit --spec my-kubeflow.yaml --run-name nightly   # what was replayed

exit codes:
"""


def add_command(commands: Any) -> None:
    """Adds it to the command line."""
    submit = commands.add_parser(
        "submit",
        help="start a run on Kubeflow or Vertex",
        description=(
            "Compiles a pipeline as `compile` does, or takes a compiled file, sends it and starts "
            "a run. Host and credentials come from where the platform's own client finds them; "
            "image, service account, labels and cache are of the YAML's `cluster:`."
        ),
        epilog=_EPILOG + "\n".join(f"  {c:>3}  {m}" for c, m in exit_codes.OF_SUBMIT.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    submit.add_argument(
        "--target",
        choices=("kubeflow", "vertex"),
        help="where it is to run; with --spec known from the file",
    )
    submit.add_argument("--config", type=Path, metavar="YAML", help="the pipeline")
    add_set(submit, "cluster.vertex.project=mine")
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
        "--run-name", metavar="NAME", help="what its page shows; default: the pipeline's, and when"
    )
    submit.add_argument(
        "--wait", action="store_true", help="show its nodes until it ends; Ctrl-C leaves it running"
    )
    submit.add_argument(
        "--poll",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="between two questions of --wait (default: 10)",
    )
    submit.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="that one request may take (default: 30)",
    )
    submit.set_defaults(command=_submit)


def _seconds(text: str) -> float:
    if not (seconds := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds above 0")
    return seconds


def _submit(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.targets.submit import Options, submit

    config = None
    if arguments.config is not None:
        config = configuration(arguments)
    options = Options(
        parameters=arguments.parameter,
        experiment=arguments.experiment,
        run_name=arguments.run_name,
        wait=arguments.wait,
        poll=arguments.poll,
        timeout=arguments.timeout,
    )
    return submit(arguments.target, config, arguments.spec, options)
