"""`python -m pipeline image build`: write the context, build, print the next commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.image import sources
from pipeline.image.builders import find_builder
from pipeline.image.context import write_context
from pipeline.image.sbom import check_sbom_path, write_sbom
from pipeline.image.settings import write_secrets
from pipeline.image.stacks import ImageStack
from trainer_module.devices.local_cluster import describe_end

_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
# The names of OCI's distribution specification, with an optional registry and without a digest.
_NAME = re.compile(
    rf"(?:(?=[^/]*[.:])[\w.\[\]:-]+/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?", re.ASCII
)


def build_image(
    stack: ImageStack,
    tags: Sequence[str],
    packages: Sequence[Path],
    *,
    builder: str | None = None,
    base: str | None = None,
    dataflow: bool = False,
    cuda: bool | None = None,
    sbom: Path | None = None,
    fresh: bool = False,
    verbose: bool = False,
) -> int:
    """Build an image. The builder prints its progress.

    Args:
        stack: Contents of the image.
        tags: Names of the image; a name without a tag gets this package's version.
        packages: Folders or wheels of the user.
        builder: docker, podman or buildah; None: the first that works.
        base: Base image to use instead of the stack's.
        dataflow: Whether the image is for Dataflow's workers.
        cuda: Whether to install NVIDIA's CUDA libraries; None: not specified, none are installed.
        sbom: File for a CycloneDX document of the contents; None: none is written.
        fresh: Whether to ignore layers of earlier builds.
        verbose: Whether to print all output of the builder.

    Returns:
        The exit code.

    Raises:
        ConfigError: A name, a folder or the builder is invalid; nothing was built.
    """
    names = [with_tag(name) for name in tags]
    if sbom is not None:
        check_sbom_path(sbom)
    sources.check_packages(packages)
    tool = find_builder(builder)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfx-largebatch-image-") as folder:
        context = Path(folder, "context")
        write_context(context, stack, packages, base=base, cuda=cuda)
        secrets = write_secrets(Path(folder))
        target = "dataflow" if dataflow else "nodes"
        print(f"TFX {stack.name} with {tool.name}: {', '.join(names)}", flush=True)
        code = _run(
            tool.build(context, names, secrets, target=target, fresh=fresh, verbose=verbose)
        )
    if code:
        print(f"{tool.name} {describe_end(code)}: see its output above.", file=sys.stderr)
        return exit_codes.FAILED
    image = names[0]
    if sbom is not None:
        try:
            print(f"{sbom}: {write_sbom(tool, image, sbom)} packages of {image}")
        except RuntimeError as error:
            print(f"--sbom {sbom}: {error}", file=sys.stderr)
            return exit_codes.FAILED
    print(f"\n{image}: TFX {stack.name}, built in {time.monotonic() - started:.0f} s", flush=True)
    subprocess.run([tool.name, "images", image], check=False)  # with its size
    print("\nNext:")
    for name in names:
        print(f"  {tool.name} push {name}")
    print("  python -m pipeline compile --target kubeflow --config my.yaml", end=" ")
    print(f"--set cluster.kubeflow.image={image}")
    print(f"  python -m pipeline replay --spec my-kubeflow.yaml --image {image} ...")
    return exit_codes.DONE


def with_tag(name: str) -> str:
    """Return the name of an image with a tag, by default this package's version.

    Raises:
        ConfigError: No registry accepts the name.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The image name {name!r} is not valid. Use lowercase letters and digits, with . _ - "
            "between them, and at most one :tag, as in registry.example/my-pipeline:1.0; set it "
            "by --tag or cluster.<target>.image."
        )
    return name if ":" in name.rpartition("/")[2] else f"{name}:{sources.version()}"


def _run(command: Sequence[str]) -> int:
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}  # docker below 23 has another default
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise
