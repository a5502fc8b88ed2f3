"""`python -m pipeline compile` and `replay`: a pipeline for a cluster, tried on this machine."""

from __future__ import annotations

from types import SimpleNamespace

from pipeline.cli import options
from pipeline.cli.base import command, option, value
from pipeline.cli.quiet import quiet
from shared_core.atomic_files import message_stream

_COMPILE = """\
Examples:
  python -m pipeline compile --target kubeflow my.yaml
  python -m pipeline compile --target vertex my.yaml --output job.json
"""


@command("compile", epilog=_COMPILE)
@options.target_option("the platform to compile for", required=True)
@options.config_value()
@options.set_option("cluster.vertex.image=registry/name:2")
@options.output_option("FILE", "default: <name>-<target>.yaml or .json, in this folder")
def compile_(given: SimpleNamespace) -> int:
    """Write the file that Kubeflow or Vertex runs.

    Writes a pipelineSpec for Kubeflow (YAML, schema 2.1.0) or a PipelineJob for Vertex (JSON).
    Settings of the target are those of `cluster:` in the YAML; unsupported settings are errors.
    Runs offline.
    """
    quiet()
    from pipeline.replay.remote_places import map_options
    from pipeline.targets.compile import advice, compile_file
    from pipeline.targets.compiled_spec import CompiledSpec

    config = options.load(given)
    path = compile_file(config, given.target, given.output)
    if text := advice(config, given.target):
        print(text, file=message_stream(path))
    # What was written to a pipe or to /dev/stdout cannot be read back.
    has_file = path.is_file() and not path.is_relative_to("/dev")
    maps = map_options(CompiledSpec.read(path)) if has_file else "--map PREFIX=FOLDER"
    replay = f"python -m pipeline replay --spec {path} {maps}".rstrip()
    fields = ", ".join(getattr(config.cluster, given.target).parameters)
    print(
        f"{path}: {config.name} for {given.target}. Try it on this machine with\n"
        f"  {replay}\n"
        f"and start it there with\n  python -m pipeline submit --spec {path} --wait"
        + (f"\nBoth can set with --parameter NAME=VALUE: {fields}" if fields else ""),
        file=message_stream(path),
    )
    return 0


_REPLAY = """\
Examples:
  python -m pipeline replay my-kubeflow.yaml --map s3://bucket/data=./data
"""


@command("replay", epilog=_REPLAY)
@value("--spec", "FILE", "a file that `compile` wrote", type=options.FILE)
@options.map_option
@option(
    "--root",
    "FOLDER",
    "local folder in place of the pipeline root; a second replay in the same folder compares its "
    "model with that of the first",
    type=options.FOLDER,
    default="output/replay",
)
@options.parameter_option
def replay(given: SimpleNamespace) -> int:
    """Execute a compiled file on this machine.

    Executes what `compile` wrote as the platform does: the command of each container with its
    placeholders filled, one process per node (per worker of a CustomJob), in the order of the
    spec, with its retries and timeouts. Artifacts go to a local folder.
    --map replaces remote folders that the pipeline reads with local ones. Run it inside the image
    to test what you deploy.
    """
    from pipeline.replay.replay_command import replay_file

    return replay_file(
        given.spec,
        root=given.root,
        maps=given.map,
        parameters=given.parameter,
    )
