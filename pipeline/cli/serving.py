"""`python -m pipeline serve-manifest`."""

from __future__ import annotations

from types import SimpleNamespace

from pipeline.cli import options
from pipeline.cli.base import choice, command, option
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
@choice(
    "--signature",
    ("raw", "serving_default"),
    "signature of the request; default: raw (a value per column) for kserve, serving_default "
    "(tf.Examples) for vertex",
)
def serve_manifest(given: SimpleNamespace) -> int:
    """Write what serves a pushed model on KServe or Vertex.

    Writes an InferenceService for KServe, or the request that uploads the model for Vertex.
    Server settings are those of cluster.kubeflow.server and cluster.vertex.server. With --rows it
    also writes a request that the server accepts.
    """
    quiet()
    from pipeline.serving.manifest import ManifestOptions, next_steps, write_manifest
    from pipeline.targets.run_parameters import name_and_value

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
    print("Next:")
    for line in next_steps(manifest, given.target):
        print(f"  {line}")
    return 0
