"""`python -m pipeline compile` and `replay`: a pipeline for a cluster, tried on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.cli import serving
from pipeline.cli.configured import add_set, configuration
from pipeline.cli.positionals import accept_positionals
from pipeline.cli.quiet import quiet
from pipeline.common.whole_files import message_stream

TARGETS = ("kubeflow", "vertex")


def add_commands(commands: Any) -> None:
    """Adds them to the command line."""
    compile_ = commands.add_parser(
        "compile",
        help="write the file that Kubeflow or Vertex takes",
        description=(
            "Compiles a pipeline for a cluster: for Kubeflow a pipelineSpec (YAML, schema 2.1.0), "
            "for Vertex a PipelineJob (JSON). What the target cannot do is refused, with the field "
            "and the fix. No cloud is asked. The YAML's `cluster:` says where it is to run."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline compile --target kubeflow --config my.yaml\n"
            "  python -m pipeline compile --target vertex --config my.yaml --output job.json"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compile_.add_argument("--target", required=True, choices=TARGETS, help="where it is to run")
    config = compile_.add_argument("--config", type=Path, metavar="YAML", help="the pipeline")
    accept_positionals(compile_, config)
    add_set(compile_, "cluster.vertex.image=registry/name:2")
    compile_.add_argument(
        "--output", type=Path, metavar="FILE", help="default: <name>-<target>.yaml or .json, here"
    )
    compile_.set_defaults(command=_compile)

    replay = commands.add_parser(
        "replay",
        help="execute a compiled file on this machine",
        description=(
            "Executes what `compile` wrote, as the platform would: each container's own command "
            "with its placeholders filled, one process per node (per worker of a CustomJob), in "
            "the order of the spec, with its conditions, exit handlers, retries and timeouts. "
            "Artifacts go to a folder of this machine; remote places that the pipeline reads are "
            "mapped to local ones with --map. With --image the commands run in containers of an "
            "image, one for each, with what is installed there: what is deployed has been run."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline replay --spec my-kubeflow.yaml --map s3://bucket/data=./data\n"
            "  python -m pipeline replay --spec my-kubeflow.yaml --map s3://bucket/data=./data "
            "--image"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    spec = replay.add_argument("--spec", type=Path, metavar="FILE", help="what was compiled")
    accept_positionals(replay, spec)
    replay.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="PREFIX=FOLDER",
        help="a remote place and what stands for it on this machine; repeatable",
    )
    replay.add_argument(
        "--root",
        type=Path,
        default=Path("output/replay"),
        metavar="FOLDER",
        help="in the pipeline root's place (default: output/replay); a second replay in the same "
        "one compares with the model of the first",
    )
    replay.add_argument(
        "--remote",
        action="store_true",
        help="nothing stands for remote places but what --map says: artifacts go to the pipeline "
        "root itself, with this machine's credentials; --root has the logs",
    )
    replay.add_argument(
        "--lenient",
        action="store_true",
        help="a file for Kubeflow: run its commands without what Kubeflow's driver and launcher do "
        "around them (extra outputs, downloads, uploads, limits, a pod's environment)",
    )
    replay.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the pipeline, such as training.epochs=3 for a field of the YAML that "
        "cluster.<target>.parameters lists; of the type that the file declares; repeatable",
    )
    replay.add_argument(
        "--image",
        nargs="?",
        const="",
        metavar="NAME",
        help="run each command in this image (built by `image build`), not with this machine's "
        "Python; without a name: in the image that the file names",
    )
    replay.add_argument(
        "--builder",
        choices=("docker", "podman", "buildah"),
        help="what runs the image; default: the one that has it",
    )
    replay.add_argument(
        "--check-serving",
        metavar="ROWS",
        help="then send the rows of this file to the pushed model as `check-serving` does; ends "
        "with 1 where an answer is an error or not what `predict` gives",
    )
    replay.set_defaults(command=_replay)


def _compile(arguments: argparse.Namespace) -> int:
    quiet()
    from pipeline.targets.compile import advice, compile_file
    from pipeline.targets.compiled_spec import CompiledSpec
    from pipeline.targets.remote_places import map_options

    config = configuration(arguments)
    path = compile_file(config, arguments.target, arguments.output)
    if said := advice(config, arguments.target):
        print(said, file=message_stream(path))
    # What was written to a pipe or to /dev/stdout cannot be read back.
    has_file = path.is_file() and not path.is_relative_to("/dev")
    maps = map_options(CompiledSpec.read(path)) if has_file else "--map PREFIX=FOLDER"
    replay = f"python -m pipeline replay --spec {path} {maps}".rstrip()
    fields = ", ".join(getattr(config.cluster, arguments.target).parameters)
    print(
        f"{path}: {config.name} for {arguments.target}. Try it on this machine with\n"
        f"  {replay}\n"
        f"and start it there with\n  python -m pipeline submit --spec {path} --wait"
        + (f"\n--parameter NAME=VALUE of both sets: {fields}" if fields else ""),
        file=message_stream(path),
    )
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from pipeline.targets.replay_command import replay_file

    return replay_file(
        arguments.spec,
        root=arguments.root,
        maps=arguments.map,
        parameters=arguments.parameter,
        remote=arguments.remote,
        lenient=arguments.lenient,
        image=arguments.image,
        builder=arguments.builder,
        check_pushed=serving.pushed_model_check(arguments.check_serving),
    )
