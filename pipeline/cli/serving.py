"""`python -m pipeline check-serving` and `serve-manifest`: their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.cli.configured import add_set, configuration
from pipeline.cli.positionals import accept_positionals
from pipeline.cli.quiet import quiet
from pipeline.common.sources import SOURCES

SERVING_TARGETS = ("kserve", "vertex")


def add_commands(commands: Any) -> None:
    """Add them to the command line."""
    _add_check(commands)
    _add_manifest(commands)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check-serving",
        help="send real rows to a model as its server takes them",
        description=(
            "Loads a pushed model as tensorflow_model_server does, in a process without this "
            "project's packages, sends rows as JSON to each signature that clients of the target "
            "call, and compares the answers with those of `predict`. With --url the rows go to a "
            "server that runs. Ends with 1 where an answer is an error or differs."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline check-serving --model out/serving_model --data rows.csv\n"
            "  python -m pipeline check-serving --model out/serving_model --data rows.csv "
            "--url http://localhost:8501/v1/models/taxi"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    model = check.add_argument(
        "--model",
        metavar="FOLDER",
        help="a pushed model, or the folder of its numbered versions (the latest is taken)",
    )
    data = check.add_argument(
        "--data", "--input", metavar="FILE", help="rows, in any format that `predict` reads"
    )
    accept_positionals(check, model, data)
    check.add_argument(
        "--source",
        choices=(*SOURCES, "jsonl"),
        help="format of --data; default: by its name",
    )
    check.add_argument(
        "--config",
        type=Path,
        metavar="YAML",
        help="the pipeline whose data.csv says how CSV is written",
    )
    check.add_argument(
        "--target",
        choices=SERVING_TARGETS,
        default="kserve",
        help="what is to serve it: kserve calls serving_default and raw (so does "
        "tensorflow_model_server), vertex serving_default (default: kserve)",
    )
    check.add_argument(
        "--rows",
        type=positive,
        default=100,
        metavar="COUNT",
        help="how many rows are sent (default: 100)",
    )
    check.add_argument(
        "--url",
        metavar="URL",
        help="a model on a running server: http://HOST:PORT/v1/models/NAME",
    )
    check.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="a Python with the server's version of TensorFlow, which then loads the model",
    )
    check.set_defaults(command=_check)


def _add_manifest(commands: Any) -> None:
    manifest = commands.add_parser(
        "serve-manifest",
        help="write what serves a pushed model on KServe or Vertex, or deploy it on Vertex",
        description=(
            "Writes an InferenceService for KServe, or for Vertex the requests that upload the "
            "model, create an endpoint and deploy to it; --deploy sends these. Server settings are "
            "those of cluster.kubeflow.server and cluster.vertex.server. With --rows it writes a "
            "request that the server takes, too."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline serve-manifest --target kserve --config my.yaml \\\n"
            "      --model s3://bucket/pipelines/taxi/serving_model --rows rows.csv\n"
            "  python -m pipeline serve-manifest --target vertex --config my.yaml \\\n"
            "      --model gs://bucket/pipelines/taxi/serving_model --deploy"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    manifest.add_argument(
        "--target", required=True, choices=SERVING_TARGETS, help="what serves the model"
    )
    manifest.add_argument(
        "--model",
        required=True,
        metavar="PLACE",
        help="remote folder of the pushed versions, or one of them",
    )
    manifest.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="PREFIX=FOLDER",
        help="a remote place and what stands for it on this machine, where the model is read; "
        "repeatable",
    )
    manifest.add_argument(
        "--name", help="of the service or endpoint; default: the pipeline's of --config"
    )
    manifest.add_argument(
        "--config", type=Path, metavar="YAML", help="the pipeline, for cluster.*.server"
    )
    add_set(manifest, "cluster.kubeflow.server.cpu=2")
    manifest.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: <name>-kserve.yaml or <name>-vertex-serving.json, here",
    )
    manifest.add_argument(
        "--rows",
        metavar="FILE",
        help="rows, in any format that `predict` reads; the first 3 become a request",
    )
    manifest.add_argument(
        "--signature",
        choices=("raw", "serving_default"),
        help="that the request calls; default: raw (a value per column) for kserve, "
        "serving_default (tf.Examples) for vertex",
    )
    manifest.add_argument(
        "--deploy",
        action="store_true",
        help="vertex: upload the model and deploy it to the endpoint of this name, which is "
        "created if there is none",
    )
    manifest.set_defaults(command=_manifest)


def pushed_model_check(rows: str | None) -> Callable[[str, str], int] | None:
    """Return the check of a pushed model by the rows of a file, for a target of `compile`.

    Args:
        rows: the file; None: there is no check.

    Raises:
        ConfigError: the file cannot be read, so that nothing needs to run before that is known.
    """
    if rows is None:
        return None
    from pipeline.serving.check import CheckOptions, check_serving
    from pipeline.serving.requests import rows_file

    with rows_file(rows):
        pass

    def check(model: str, target: str) -> int:
        quiet()
        options = CheckOptions(target="kserve" if target == "kubeflow" else "vertex")
        return check_serving(model, rows, options)

    return check


def positive(text: str) -> int:
    """Return a number of at least 1."""
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of at least 1")
    return count


def _check(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.serving.check import CheckOptions, check_serving

    csv_options = None
    if arguments.config is not None:
        from pipeline.config.config_file import load_config

        csv_options = load_config(arguments.config).data.csv
    options = CheckOptions(
        target=arguments.target,
        rows=arguments.rows,
        url=arguments.url,
        python=arguments.python,
        kind=arguments.source,
        csv_options=csv_options,
    )
    return check_serving(arguments.model, arguments.data, options)


def _manifest(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.common.errors import ConfigError
    from pipeline.serving.manifest import ManifestOptions, next_steps, write_manifest
    from pipeline.targets.run_parameters import name_and_value

    if arguments.deploy and arguments.target != "vertex":
        raise ConfigError("--deploy is for --target vertex; deploy to KServe with kubectl apply.")
    options = ManifestOptions(
        target=arguments.target,
        model=arguments.model,
        name=arguments.name,
        maps=dict(name_and_value(m, "--map", "s3://bucket/models=./m") for m in arguments.map),
        output=arguments.output,
        rows=arguments.rows,
        signature=arguments.signature,
    )
    config = None if arguments.config is None else configuration(arguments)
    manifest = write_manifest(options, config)
    version = manifest.model.place.rpartition("/")[2]
    print(
        f"{manifest.file}: version {version} of {manifest.uri} for {options.target}, written by "
        f"TensorFlow {manifest.model.tensorflow}"
    )
    if manifest.request:
        print(f"{manifest.request[0]}: a request of signature {manifest.request[1]}")
    if arguments.deploy:
        from pipeline.serving.vertex_deploy import deploy

        return deploy(manifest.content, config, manifest.request[0] if manifest.request else None)
    print("Next:")
    for line in next_steps(manifest, options.target):
        print(f"  {line}")
    return 0
