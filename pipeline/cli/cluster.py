"""The commands for a cluster: image, compile, replay, submit, serve-manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from pipeline.cli.base import (
    DATA,
    FILE,
    FOLDER,
    command,
    config_value,
    flag,
    group,
    list_exit_codes,
    load,
    map_option,
    option,
    output_option,
    parameter_option,
    quiet,
    set_option,
    target_option,
    value,
)
from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from shared_core.atomic_files import message_stream

if TYPE_CHECKING:
    from pipeline.serving.model import ServingTarget
    from pipeline.targets.compile import Target


_BUILD = """\
Examples:
  python -m pipeline image build --tag registry.example/my-pipeline:1.0 \\
      --with ./my_package
  python -m pipeline image build --config my.yaml     # cluster.<target>.image
  python -m pipeline image build --output context     # prints the command that builds it

A package of yours is a folder with a pyproject.toml; three lines are enough:
  [project]
  name = "my_package"
  version = "1.0"
"""


@group("image")
def image() -> None:
    """Build the container image that a cluster runs.

    A cluster's nodes and Beam's workers run in it.
    """


@image.command("build", epilog=_BUILD)
@option(
    "--stack",
    metavar="VERSION",
    type=click.Choice(("1.16", "1.21")),
    help="its TFX: 1.16 on Debian 12 (Python 3.11), 1.21 on Debian 13 (Python 3.13); default: the "
    "one that is installed here, because the image must run what is compiled here",
)
@option("--tag", "tags", metavar="NAME:TAG", multiple=True, help="name of the image; repeatable")
@option(
    "--with",
    "packages",
    metavar="FOLDER",
    multiple=True,
    type=FILE,
    help="install a package of yours, or a wheel, and what it needs beyond the lock file, in "
    "versions that fit the lock file; repeatable",
)
@option(
    "--config", metavar="YAML", type=FILE, help="use its cluster.<target>.image in place of --tag"
)
@set_option("cluster.vertex.image=registry/name:2")
@option(
    "--base",
    metavar="IMAGE",
    help="base image: Debian's or one made from it, with the stack's Python; default: "
    "debian:bookworm-slim or debian:trixie-slim",
)
@option(
    "--cuda/--no-cuda",
    default=None,
    help="install NVIDIA's CUDA libraries, which TensorFlow needs to use a GPU; default: if a node "
    "of --config requests an NVIDIA accelerator. Give --no-cuda if --base has them",
)
@output_option(
    metavar="FOLDER",
    type=FOLDER,
    help="write the Containerfile and the files that it needs, build nothing",
)
def build(
    stack: str | None,
    tags: tuple[str, ...],
    packages: tuple[Path, ...],
    config: Path | None,
    overrides: tuple[str, ...],
    base: str | None,
    cuda: bool | None,
    output: Path | None,
) -> int:
    """Build the image from a stack's lock file, this package and yours.

    Builds an image with all packages of a lock file (each file checked by its hash), this package
    and yours, byte-compiled, for a user that is not root and without the compiler. Calls buildah,
    podman or docker, the first that works. Package indexes, proxies and certificates are those of
    this machine (pip's settings, PIP_*, UV_*, HTTPS_PROXY); no layer contains them. For
    `beam.engine: dataflow` it adds Beam's start program of a worker and runs as root.
    """
    from pipeline.image.build import build_image, stack_named, write_context

    if tags and config:
        raise ConfigError("--tag and --config both name the image; remove one of them.")
    if not tags and config is None and output is None:
        raise ConfigError(
            "The image needs a name: add --tag registry/name:1.0, or --config my.yaml to use its "
            "cluster.<target>.image."
        )
    pipeline = None if config is None else load(config, overrides)
    cluster = None if pipeline is None else pipeline.cluster
    targets = [each for each in (cluster.kubeflow, cluster.vertex) if each] if cluster else []
    if pipeline is not None and not targets and output is None:
        raise ConfigError(f"{config}: no cluster: section names an image; add one, or give --tag.")
    engines = {(each.beam or pipeline.beam).engine for each in targets if pipeline}
    target = "dataflow" if "dataflow" in engines else "nodes"
    if cuda is None:
        cuda = any(each.has_nvidia_gpu for each in targets)
    if output is None:
        names = [*tags, *dict.fromkeys(each.image for each in targets)]
        return build_image(stack_named(stack), names, packages, target=target, base=base, cuda=cuda)
    write_context(output, stack_named(stack), packages, base=base, cuda=cuda)
    print(f"{output}: Containerfile and the files that it needs. For example")
    print(f"  docker build --target {target} --file {output}/Containerfile {output}")
    return 0


_COMPILE = """\
Examples:
  python -m pipeline compile --target kubeflow my.yaml
  python -m pipeline compile --target vertex my.yaml --output job.json
"""


@command("compile", epilog=_COMPILE)
@target_option("the platform to compile for", required=True)
@config_value(required=True)
@set_option("cluster.vertex.image=registry/name:2")
@output_option(metavar="FILE", help="default: <name>-<target>.yaml or .json, in this folder")
def compile_(target: Target, config: Path, overrides: tuple[str, ...], output: Path | None) -> int:
    """Write the file that Kubeflow or Vertex runs.

    Writes a pipelineSpec for Kubeflow (YAML, schema 2.1.0) or a PipelineJob for Vertex (JSON).
    Settings of the target are those of `cluster:` in the YAML; unsupported settings are errors.
    Runs offline.
    """
    quiet()
    from pipeline.replay.replay_command import map_options
    from pipeline.targets.compile import compile_file
    from pipeline.targets.compiled_spec import CompiledSpec

    pipeline = load(config, overrides)
    path = compile_file(pipeline, target, output)
    # What was written to a pipe or to /dev/stdout cannot be read back.
    has_file = path.is_file() and not path.is_relative_to("/dev")
    maps = map_options(CompiledSpec.read(path)) if has_file else "--map PREFIX=FOLDER"
    replay = f"python -m pipeline replay --spec {path} {maps}".rstrip()
    fields = ", ".join(getattr(pipeline.cluster, target).parameters)
    print(
        f"{path}: {pipeline.name} for {target}. Try it on this machine with\n"
        f"  {replay}\n"
        "and start it there with\n"
        f"  python -m pipeline submit --spec {path} --config {config} --wait"
        + (f"\nBoth can set with --parameter NAME=VALUE: {fields}" if fields else ""),
        file=message_stream(path),
    )
    return 0


_REPLAY = """\
Examples:
  python -m pipeline replay my-kubeflow.yaml --map s3://bucket/data=./data
"""


@command("replay", epilog=_REPLAY)
@value("--spec", metavar="FILE", type=FILE, required=True, help="a file that `compile` wrote")
@map_option
@option(
    "--root",
    metavar="FOLDER",
    type=FOLDER,
    default="output/replay",
    show_default=True,
    help="local folder in place of the pipeline root; a second replay in the same folder compares "
    "its model with that of the first",
)
@parameter_option
def replay(spec: Path, maps: tuple[str, ...], root: Path, parameters: tuple[str, ...]) -> int:
    """Execute a compiled file on this machine.

    Executes what `compile` wrote as the platform does: the command of each container with its
    placeholders filled, one process per node (per worker of a CustomJob), in the order of the
    spec, with its retries and timeouts. Artifacts go to a local folder.
    --map replaces remote folders that the pipeline reads with local ones. Run it inside the image
    to test what you deploy.
    """
    from pipeline.replay.replay_command import replay_file

    return replay_file(spec, root=root, maps=maps, parameters=parameters)


_SUBMIT = """\
Examples:
  export KF_PIPELINES_ENDPOINT=https://kubeflow.example/pipeline
  python -m pipeline submit --target kubeflow my.yaml --wait
  gcloud auth application-default login
  python -m pipeline submit --target vertex my.yaml
  python -m pipeline submit --spec my-kubeflow.yaml --run-name nightly
"""


@command("submit", epilog=_SUBMIT + list_exit_codes(exit_codes.OF_SUBMIT))
@target_option("where it will run; default: what the file of --spec was compiled for")
@config_value()
@set_option("cluster.vertex.project=my-project")
@option(
    "--spec",
    metavar="FILE",
    type=FILE,
    help="send this file of `compile` unchanged; with --config, project, region and service "
    "account come from the YAML",
)
@parameter_option
@option(
    "--experiment",
    metavar="NAME",
    help="Kubeflow: the experiment that groups the run, created if it does not exist (default: "
    "$KF_PIPELINES_DEFAULT_EXPERIMENT_NAME, or Default)",
)
@option(
    "--run-name",
    metavar="NAME",
    help="name of the run on the platform; default: the pipeline's name and the time",
)
@flag("--wait", help="wait until the run ends, and show its nodes; Ctrl-C does not stop the run")
@option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(1, 86_400),
    default=30,
    show_default=True,
    help="time limit for connecting and for each wait for the server",
)
def submit(
    target: Target | None,
    config: Path | None,
    overrides: tuple[str, ...],
    spec: Path | None,
    **options: Any,
) -> int:
    """Start a run on Kubeflow or Vertex.

    Compiles a pipeline, or reads a compiled file, and starts a run of it. Host and credentials are
    those of the platform's own client. Image, service account, labels and cache come from
    `cluster:` of the YAML.
    """
    quiet()
    from pipeline.targets.submit import Options, submit

    pipeline = None if config is None else load(config, overrides)
    return submit(target, pipeline, spec, Options(**options))


_MANIFEST = """\
Examples:
  python -m pipeline serve-manifest --target kserve --config my.yaml \\
      --model s3://bucket/pipelines/taxi/serving_model --rows rows.csv
  python -m pipeline serve-manifest --target vertex --config my.yaml \\
      --model gs://bucket/pipelines/taxi/serving_model
"""


@command("serve-manifest", epilog=_MANIFEST)
@target_option("what serves the model", ("kserve", "vertex"), required=True)
@option(
    "--model",
    metavar="FOLDER",
    required=True,
    help="remote folder of a pushed model, or of its versions",
)
@map_option
@config_value(required=True, help="the pipeline, for its name and cluster.*.server")
@set_option("cluster.kubeflow.server.maxReplicas=2")
@output_option(
    metavar="FILE",
    help="default: <name>-kserve.yaml or <name>-vertex-upload.json, in this folder",
)
@option(
    "--rows",
    metavar="FILE",
    type=DATA,
    help="rows, in any format that `predict` reads; the first 3 become a request",
)
def serve_manifest(
    target: ServingTarget,
    maps: tuple[str, ...],
    config: Path,
    overrides: tuple[str, ...],
    model: str,
    output: Path | None,
    rows: str | None,
) -> int:
    """Write what serves a pushed model on KServe or Vertex.

    Writes an InferenceService for KServe, or the request that uploads the model for Vertex.
    Server settings are those of cluster.kubeflow.server and cluster.vertex.server. With --rows it
    also writes a request that the server accepts.
    """
    quiet()
    from pipeline.serving.manifest import write_manifest
    from pipeline.targets.run_parameters import name_and_value

    places = dict(name_and_value(each, "--map", "s3://bucket/models=./m") for each in maps)
    lines = write_manifest(
        target, model, load(config, overrides), maps=places, output=output, rows=rows
    )
    print(*lines, sep="\n")
    return 0
