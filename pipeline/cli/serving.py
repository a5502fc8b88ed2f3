"""`python -m pipeline serve-manifest`."""

from __future__ import annotations

from types import SimpleNamespace

from pipeline.cli import options
from pipeline.cli.base import command, option
from pipeline.cli.quiet import quiet

_MANIFEST = """\
Examples:
  python -m pipeline serve-manifest --target kserve --config my.yaml \\
      --model s3://bucket/pipelines/taxi/serving_model --rows rows.csv
  python -m pipeline serve-manifest --target vertex --config my.yaml \\
      --model gs://bucket/pipelines/taxi/serving_model
"""


@command("serve-manifest", epilog=_MANIFEST)
@options.target_option("what serves the model", options.SERVING_TARGETS, required=True)
@option("--model", "FOLDER", "remote folder of a pushed model, or of its versions", required=True)
@options.map_option
@option("--name", "NAME", "name of the service or endpoint; default: the pipeline's name")
@options.config_option("the pipeline, for cluster.*.server")
@options.set_option("cluster.kubeflow.server.cpu=2")
@options.output_option(
    "FILE", "default: <name>-kserve.yaml or <name>-vertex-upload.json, in this folder"
)
@option(
    "--rows",
    "FILE",
    "rows, in any format that `predict` reads; the first 3 become a request",
    type=options.DATA,
)
def serve_manifest(given: SimpleNamespace) -> int:
    """Write what serves a pushed model on KServe or Vertex.

    Writes an InferenceService for KServe, or the request that uploads the model for Vertex.
    Server settings are those of cluster.kubeflow.server and cluster.vertex.server. With --rows it
    also writes a request that the server accepts.
    """
    quiet()
    from pipeline.serving.manifest import write_manifest
    from pipeline.targets.run_parameters import name_and_value

    lines = write_manifest(
        given.target,
        given.model,
        options.load_if_given(given),
        name=given.name,
        maps=dict(name_and_value(each, "--map", "s3://bucket/models=./m") for each in given.map),
        output=given.output,
        rows=given.rows,
    )
    print(*lines, sep="\n")
    return 0
