"""`python -m pipeline image build`: the container image that a cluster runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import flag, group, option
from pipeline.common.errors import ConfigError

STACKS = ("1.16", "1.21")

_EPILOG = """\
Examples:
  python -m pipeline image build --tag registry.example/my-pipeline:1.0 \\
      --with ./my_package
  python -m pipeline image build --config my.yaml     # cluster.<target>.image
  python -m pipeline image build --tag name:1.0 --output context
      # then: docker build context

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


@image.command("build", epilog=_EPILOG)
@option(
    "--stack",
    "VERSION",
    "its TFX: 1.16 on Debian 12 (Python 3.11), 1.21 on Debian 13 (Python 3.13); default: the one "
    "that is installed here, because the image must run what is compiled here",
    type=click.Choice(STACKS),
)
@option(
    "--tag",
    "NAME:TAG",
    "name of the image; repeatable",
    multiple=True,
)
@option(
    "--with",
    "FOLDER",
    "install a package of yours, or a wheel, and what it needs beyond the lock file, in versions "
    "that fit the lock file; repeatable",
    "packages",
    multiple=True,
    type=options.FILE,
)
@options.config_option("use its cluster.<target>.image in place of --tag")
@options.set_option("cluster.vertex.image=registry/name:2")
@option(
    "--base",
    "IMAGE",
    "base image: Debian's or one made from it, with the stack's Python; default: "
    "debian:bookworm-slim or debian:trixie-slim",
)
@flag(
    "--dataflow",
    "for Dataflow's workers: add Beam's start program of a worker (copied from Beam's image) and "
    "run as root; default if --config has beam.engine: dataflow",
)
@click.option(
    "--cuda/--no-cuda",
    default=None,
    help="install NVIDIA's CUDA libraries, which TensorFlow needs to use a GPU; default: if a node "
    "of --config requests an NVIDIA accelerator. Give --no-cuda if --base has them",
)
@options.output_option(
    "FOLDER", "write the Containerfile and the files that it needs, build nothing", options.FOLDER
)
def build(given: SimpleNamespace) -> int:
    """Build the image from a stack's lock file, this package and yours.

    Builds an image with all packages of a lock file (each file checked by its hash), this package
    and yours, byte-compiled, for a user that is not root and without the compiler. Calls buildah,
    podman or docker, the first that works. Package indexes, proxies and certificates are those of
    this machine (pip's settings, PIP_*, UV_*, HTTPS_PROXY); no layer contains them.
    """
    from pipeline.image.build import build_image
    from pipeline.image.context import stack_named, write_context

    stack = stack_named(given.stack)
    image = _image(given, needs_name=given.output is None)
    cuda = image.has_gpu if given.cuda is None else given.cuda
    target = "dataflow" if given.dataflow or image.has_dataflow else "nodes"
    if given.output is None:
        return build_image(
            stack, image.names, given.packages, target=target, base=given.base, cuda=cuda
        )
    write_context(given.output, stack, given.packages, base=given.base, cuda=cuda)
    print(f"{given.output}: Containerfile and the files that it needs. For example")
    print(f"  docker build --target {target} --file {given.output}/Containerfile {given.output}")
    return 0


class _Image(NamedTuple):
    """The image that the command line or the YAML describes.

    Attributes:
        names: Its names.
        has_dataflow: Whether Dataflow runs it.
        has_gpu: Whether a node that runs it requests an NVIDIA accelerator.
    """

    names: list[str]
    has_dataflow: bool = False
    has_gpu: bool = False


def _image(given: SimpleNamespace, *, needs_name: bool) -> _Image:
    if given.tag and given.config:
        raise ConfigError("--tag and --config both name the image; remove one of them.")
    if given.tag or (given.config is None and not needs_name):
        return _Image(list(given.tag))
    if given.config is None:
        raise ConfigError(
            "The image needs a name: add --tag registry/name:1.0, or --config my.yaml to use its "
            "cluster.<target>.image."
        )
    config = options.load(given)
    cluster = config.cluster
    targets = [t for t in (cluster.kubeflow, cluster.vertex) if t] if cluster else []
    if not targets and not needs_name:
        return _Image([])
    if not targets:
        raise ConfigError(
            f"{given.config}: no cluster: section names an image; add one, or give --tag."
        )
    engines = {(target.beam or config.beam).engine for target in targets}
    return _Image(
        list(dict.fromkeys(target.image for target in targets)),
        has_dataflow="dataflow" in engines,
        has_gpu=any(target.has_nvidia_gpu for target in targets),
    )
