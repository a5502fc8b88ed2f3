"""`python -m pipeline image build`: the container image that a cluster runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.cli.configured import add_set, configuration

STACKS = ("1.16", "1.21")
BUILDERS = ("docker", "podman", "buildah")


def add_commands(commands: Any) -> None:
    """Adds them to the command line."""
    image = commands.add_parser(
        "image",
        help="build the container image that a cluster runs",
        description="The container image of a cluster's nodes and of Beam's workers.",
    )
    parts = image.add_subparsers(title="commands", required=True, metavar="COMMAND")
    build = parts.add_parser(
        "build",
        help="build it from a stack's lock file, this package and yours",
        description=(
            "Builds an image with everything that a lock file names (each file checked by its "
            "hash), this package and packages of yours, byte-compiled, for a user that is not "
            "root. The compiler stays behind. docker, podman or buildah does it, whichever "
            "answers. Package indexes, proxies and certificates are those of this machine (pip's "
            "settings, PIP_*, UV_*, HTTPS_PROXY); they are in no layer."
        ),
        epilog=(
            "examples:\n"
            "  python -m pipeline image build --tag registry.example/my-pipeline:1.0 "
            "--with ./my_package\n"
            "  python -m pipeline image build --config my.yaml --with ./my_package   "
            "# cluster.<target>.image\n"
            "  python -m pipeline image build --stack 1.21 --print                    "
            "# only look at the Containerfile\n"
            "  python -m pipeline image build --tag name:1.0 --output context         "
            "# then: docker build context\n\n"
            "A package of yours is a folder with a pyproject.toml; three lines are enough:\n"
            "  [project]\n"
            '  name = "my_package"\n'
            '  version = "1.0"'
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    build.add_argument(
        "--stack",
        choices=STACKS,
        help="its TFX: 1.16 on Debian 12 (Python 3.11), 1.21 on Debian 13 (Python 3.13); default: "
        "the one that is installed here, since it has to run what is compiled here",
    )
    build.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="NAME[:TAG]",
        help="the image's name; without a tag it gets this package's version; repeatable",
    )
    build.add_argument(
        "--with",
        dest="packages",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="a package of yours, or a wheel; what it needs beyond the lock file is installed too, "
        "in versions that fit it; repeatable",
    )
    build.add_argument(
        "--config", type=Path, metavar="YAML", help="in --tag's place: its cluster.<target>.image"
    )
    add_set(build, "cluster.vertex.image=registry/name:2")
    build.add_argument(
        "--builder", choices=BUILDERS, help="what builds it; default: the first that answers"
    )
    build.add_argument(
        "--base",
        metavar="IMAGE",
        help="the image below: Debian's or one made from it, with the stack's Python; default: "
        "debian:bookworm-slim or debian:trixie-slim",
    )
    build.add_argument(
        "--dataflow",
        action="store_true",
        help="an image for Dataflow's workers: with Beam's own start of a worker (copied from "
        "Beam's image), run as root; by itself where --config has beam.engine: dataflow",
    )
    build.add_argument(
        "--cuda",
        action=argparse.BooleanOptionalAction,
        help="install NVIDIA's CUDA libraries, which TensorFlow needs to use a GPU, or leave them "
        "out; default: install them if a node of --config asks for an NVIDIA accelerator. Give "
        "--no-cuda for a --base that has them",
    )
    build.add_argument(
        "--sbom",
        type=Path,
        metavar="FILE",
        help="write a list of what the image holds, Python packages and Debian's, as a CycloneDX "
        "document (JSON)",
    )
    build.add_argument(
        "--no-cache", action="store_true", help="leave layers of earlier builds aside"
    )
    build.add_argument("--verbose", action="store_true", help="show all that the builder writes")
    look = build.add_mutually_exclusive_group()
    look.add_argument(
        "--print", action="store_true", help="print the Containerfile and build nothing"
    )
    look.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write the Containerfile and all it reads there and build nothing",
    )
    build.set_defaults(command=_build)


def _build(arguments: argparse.Namespace) -> int:
    import tempfile

    from pipeline.common.errors import ConfigError
    from pipeline.image.build import build_image, write_context
    from pipeline.image.stacks import stack_named

    stack = stack_named(arguments.stack)
    only_context = bool(arguments.print or arguments.output)
    if only_context and arguments.sbom:
        raise ConfigError(
            f"--sbom {arguments.sbom}: nothing is built with --print and --output, so there is no "
            "image to list; leave one of them out."
        )
    wanted = _wanted(arguments, needs_name=not only_context)
    cuda = (wanted.has_gpu or None) if arguments.cuda is None else arguments.cuda
    if arguments.print:
        with tempfile.TemporaryDirectory() as folder:
            context = Path(folder, "context")
            write_context(context, stack, arguments.packages, base=arguments.base, cuda=cuda)
            print((context / "Containerfile").read_text(), end="")
        return 0
    if arguments.output:
        write_context(arguments.output, stack, arguments.packages, base=arguments.base, cuda=cuda)
        target = "dataflow" if arguments.dataflow or wanted.has_dataflow else "nodes"
        print(f"{arguments.output}: Containerfile and what it reads. For example")
        print(
            f"  docker build --target {target} --file {arguments.output}/Containerfile "
            f"{arguments.output}"
        )
        return 0
    return build_image(
        stack,
        wanted.tags,
        arguments.packages,
        builder=arguments.builder,
        fresh=arguments.no_cache,
        verbose=arguments.verbose,
        base=arguments.base,
        dataflow=arguments.dataflow or wanted.has_dataflow,
        cuda=cuda,
        sbom=arguments.sbom,
    )


class _Wanted(NamedTuple):
    """What the command line or the YAML says of the image.

    Attributes:
        tags: its names.
        has_dataflow: whether Dataflow runs it.
        has_gpu: whether a node that runs it asks for an NVIDIA accelerator.
    """

    tags: list[str]
    has_dataflow: bool = False
    has_gpu: bool = False


def _wanted(arguments: argparse.Namespace, *, needs_name: bool) -> _Wanted:
    from pipeline.common.errors import ConfigError

    if arguments.tag and arguments.config:
        raise ConfigError("--tag and --config: each names the image; give one of them.")
    if arguments.tag or (arguments.config is None and not needs_name):
        return _Wanted(arguments.tag)
    if arguments.config is None:
        raise ConfigError(
            "The image has no name: give --tag registry/name:1.0, or --config my.yaml, whose "
            "cluster.<target>.image it takes."
        )
    config = configuration(arguments)
    cluster = config.cluster
    targets = [t for t in (cluster.kubeflow, cluster.vertex) if t] if cluster else []
    if not targets and not needs_name:
        return _Wanted([])
    if not targets:
        raise ConfigError(
            f"{arguments.config}: no cluster: section names an image; add one, or give --tag."
        )
    engines = {(target.beam or config.beam).engine for target in targets}
    return _Wanted(
        list(dict.fromkeys(target.image for target in targets)),
        has_dataflow="dataflow" in engines,
        has_gpu=any(target.has_nvidia_gpu for target in targets),
    )
