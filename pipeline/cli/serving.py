"""`python -m pipeline check-serving` and `serve-manifest`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import choice, command, flag, option
from pipeline.cli.quiet import quiet
from pipeline.common.errors import ConfigError

_CHECK = """\
Examples:
  python -m pipeline check-serving out/serving_model rows.csv
  python -m pipeline check-serving out/serving_model rows.csv \\
      --url http://localhost:8501/v1/models/taxi
"""


@command("check-serving", epilog=_CHECK)
@options.model_value(type=options.DATA)
@options.data_value("rows, in any format that `predict` reads")
@options.source_option("by the file's name", "jsonl")
@options.config_option("a pipeline's YAML whose data.csv describes the CSV")
@options.target_option(
    "the kind of server: kserve (also for tensorflow_model_server) calls the signatures "
    "serving_default and raw, vertex calls serving_default",
    options.SERVING_TARGETS,
    default="kserve",
)
@option("--rows", "COUNT", "number of rows to send", type=click.IntRange(min=1), default=100)
@option("--url", "URL", "check a running server: http://HOST:PORT/v1/models/NAME")
@option(
    "--python",
    "FILE",
    "load the model with this Python, e.g. one with the server's version of TensorFlow",
    type=options.FILE,
)
def check_serving(given: SimpleNamespace) -> int:
    """Send real rows to a model as its server does.

    Loads a pushed model as tensorflow_model_server does, in a process without this project's
    packages. Sends rows as JSON to each signature that clients of the target call, and compares
    the answers with those of `predict`. With --url the rows go to a running server. Exits with
    code 1 if an answer is an error or differs.
    """
    quiet()
    from pipeline.config.config_file import load_config
    from pipeline.serving.check import CheckOptions, check_serving

    check_options = CheckOptions(
        target=given.target,
        rows=given.rows,
        url=given.url,
        python=given.python,
        kind=given.source,
        csv_options=None if given.config is None else load_config(given.config).data.csv,
    )
    return check_serving(given.model, given.data, check_options)


_MANIFEST = """\
Examples:
  python -m pipeline serve-manifest --target kserve --config my.yaml \\
      --model s3://bucket/pipelines/taxi/serving_model --rows rows.csv
  python -m pipeline serve-manifest --target vertex --config my.yaml \\
      --model gs://bucket/pipelines/taxi/serving_model --deploy
"""


@command("serve-manifest", epilog=_MANIFEST)
@options.target_option("what serves the model", options.SERVING_TARGETS, required=True)
@option("--model", "FOLDER", "remote folder of a pushed model, or of its versions", required=True)
@options.map_option
@option("--name", "NAME", "name of the service or endpoint; default: the pipeline's name")
@options.config_option("the pipeline, for cluster.*.server")
@options.set_option("cluster.kubeflow.server.cpu=2")
@options.output_option(
    "FILE", "default: <name>-kserve.yaml or <name>-vertex-serving.json, in this folder"
)
@option(
    "--rows",
    "FILE",
    "rows, in any format that `predict` reads; the first 3 become a request",
    type=options.DATA,
)
@choice(
    "--signature",
    ("raw", "serving_default"),
    "signature of the request; default: raw (a value per column) for kserve, serving_default "
    "(tf.Examples) for vertex",
)
@flag(
    "--deploy",
    "vertex: upload the model and deploy it to the endpoint of this name, which is created if it "
    "does not exist",
)
def serve_manifest(given: SimpleNamespace) -> int:
    """Write what serves a pushed model on KServe or Vertex, or deploy it on Vertex.

    Writes an InferenceService for KServe, or for Vertex the requests that upload the model, create
    an endpoint and deploy to it; --deploy sends these. Server settings are those of
    cluster.kubeflow.server and cluster.vertex.server. With --rows it also writes a request that
    the server accepts.
    """
    quiet()
    from pipeline.serving.manifest import ManifestOptions, next_steps, write_manifest
    from pipeline.targets.run_parameters import name_and_value

    if given.deploy and given.target != "vertex":
        raise ConfigError("--deploy is for --target vertex; deploy to KServe with kubectl apply.")
    manifest_options = ManifestOptions(
        target=given.target,
        model=given.model,
        name=given.name,
        maps=dict(name_and_value(each, "--map", "s3://bucket/models=./m") for each in given.map),
        output=given.output,
        rows=given.rows,
        signature=given.signature,
    )
    config = options.load_if_given(given)
    manifest = write_manifest(manifest_options, config)
    version = manifest.model.place.rpartition("/")[2]
    print(
        f"{manifest.file}: version {version} of {manifest.uri} for {given.target}, written by "
        f"TensorFlow {manifest.model.tensorflow}"
    )
    if manifest.request:
        print(f"{manifest.request[0]}: a request of signature {manifest.request[1]}")
    if given.deploy:
        from pipeline.serving.vertex_deploy import deploy

        return deploy(manifest.content, config, manifest.request[0] if manifest.request else None)
    print("Next:")
    for line in next_steps(manifest, given.target):
        print(f"  {line}")
    return 0


def pushed_model_check(rows: str | None) -> Callable[[str, str], int] | None:
    """Return the check of a pushed model by the rows of a file, for a target of `compile`.

    Args:
        rows: the file; None: no check.

    Raises:
        ConfigError: the file cannot be read; raised before anything runs.
    """
    if rows is None:
        return None
    from pipeline.run.input_rows import format_of, input_files
    from pipeline.serving.check import CheckOptions, check_serving

    with input_files(rows, format_of(rows)):
        pass

    def check(model: str, target: str) -> int:
        quiet()
        serving_target = "kserve" if target == "kubeflow" else "vertex"
        return check_serving(model, rows, CheckOptions(target=serving_target))

    return check
