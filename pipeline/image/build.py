"""`python -m pipeline image build`: write the context, build with progress, print a summary."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.image import sources
from pipeline.image.builders import Builder, find_builder
from pipeline.image.containerfile import STEP, Contents, containerfile
from pipeline.image.image_labels import cuda_label
from pipeline.image.sbom import check_sbom_path, write_sbom
from pipeline.image.settings import write_secrets
from pipeline.image.stacks import ImageStack, split_dependencies

_TAIL_LINES = 25
_NAME = re.compile(
    r"^(?P<path>[a-z0-9]+([.-][a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(?P<tag>:[\w][\w.-]{0,127})?$"
)
_STEP = re.compile(rf"^(?:#\d+ [\d.]+ )?{re.escape(STEP)}(.*)$")


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
    """Build an image and print the progress.

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
    names = [checked_name(tag) for tag in tags]
    sources.check_packages(packages)
    if sbom is not None:
        check_sbom_path(sbom)
    tool = find_builder(builder)
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="tfx-largebatch-image-") as folder:
        context = Path(folder, "context")
        write_context(context, stack, packages, base=base, cuda=cuda)
        secrets = write_secrets(Path(folder))
        console.print(f"TFX {stack.name} with {tool.name}: {', '.join(names)}")
        target = "dataflow" if dataflow else "nodes"
        command = tool.build(context, names, secrets, target=target, fresh=fresh)
        started = time.monotonic()
        failed, log = _run(tool, command, console, started, verbose=verbose)
    if failed:
        console.print(f"\n{tool.name} failed:", style="bold red")
        for line in log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]:
            print(f"  {line}", file=sys.stderr)
        console.print(f"Log: {log}")
        return exit_codes.FAILED
    log.unlink()
    if sbom is not None:
        try:
            listed = write_sbom(tool, names[0], sbom)
        except RuntimeError as error:
            console.print(f"\n--sbom {sbom}: {error}", style="bold red", markup=False)
            return exit_codes.FAILED
        console.print(f"{sbom}: {listed} packages of {names[0]}", markup=False)
    _summary(tool, names, stack, time.monotonic() - started, console)
    return exit_codes.DONE


def write_context(
    folder: Path,
    stack: ImageStack,
    packages: Sequence[Path],
    *,
    base: str | None = None,
    cuda: bool | None = None,
) -> None:
    """Write the build context with its `Containerfile`, for `docker build folder`.

    Args:
        folder: A missing or empty folder.
        stack: Contents of the image.
        packages: Folders or wheels of the user.
        base: Base image to use instead of the stack's.
        cuda: Whether to install NVIDIA's CUDA libraries; None: not specified, none are installed.

    Raises:
        ConfigError: The folder is not empty, or a package cannot be built.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--output {folder}: it exists and is not empty; name a new folder.")
    sources.check_packages(packages)
    code = folder / "packages"
    code.mkdir(parents=True)
    sources.add_this_package(code)
    for path in packages:
        sources.add_package(path, code)
    (folder / "constraints.txt").write_bytes(stack.constraints.read_bytes())
    wheels, compiled = split_dependencies(stack.dependencies.read_text(encoding="utf-8"))
    (folder / "dependencies.txt").write_text(wheels)
    (folder / "compiled.txt").write_text(compiled)
    dependencies = sources.digest(folder, "*.txt")
    if cuda:
        (folder / "cuda.txt").write_bytes(stack.cuda.read_bytes())
    contents = Contents(
        stack=stack,
        base=base or stack.base,
        version=sources.version(),
        dependencies=dependencies,
        code=sources.digest(code),
        cuda=cuda_label(cuda, base),
        cuda_dependencies=sources.digest(folder, "cuda.txt") if cuda else None,
    )
    (folder / "Containerfile").write_text(containerfile(contents))


def checked_name(tag: str) -> str:
    """Return the name with a tag; without one, this package's version is appended.

    Raises:
        ConfigError: No registry accepts the name.
    """
    found = _NAME.match(tag)
    if not found:
        fix = re.sub(r"[^a-z0-9./:_-]", "-", tag.lower()).strip("-./:_") or "tfx-largebatch"
        hint = f"as in --tag {fix if _NAME.match(fix) else 'registry.example/tfx-largebatch:1.0'}"
        raise ConfigError(
            f"--tag {tag}: no image may have this name; small letters, digits and . _ - between "
            f"them, parts with / between, and one :tag at the end, {hint}."
        )
    return tag if found["tag"] else f"{tag}:{sources.version()}"


def _run(
    tool: Builder, command: list[str], console: Console, started: float, *, verbose: bool
) -> tuple[bool, Path]:
    with tempfile.NamedTemporaryFile(
        "w", prefix="tfx-largebatch-image-", suffix=".log", delete=False
    ) as log:
        with _process(tool, command) as process:
            for line in process.stdout or ():
                log.write(line)
                step = _STEP.match(line.rstrip())
                if verbose:
                    print(line, end="", flush=True)
                elif step:
                    seconds = time.monotonic() - started
                    console.print(f"[{seconds:4.0f} s] ", step[1], sep="", markup=False)
        return process.returncode != 0, Path(log.name)


@contextmanager
def _process(tool: Builder, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=tool.environment(),
    )
    try:
        yield process
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _summary(
    tool: Builder, names: Sequence[str], stack: ImageStack, seconds: float, console: Console
) -> None:
    facts = tool.facts(names[0])
    console.print(
        f"\n{names[0]}: TFX {stack.name}, {facts.size} in {facts.layers} layers, built in "
        f"{seconds:.0f} s. Next:"
    )
    image = names[0]
    for name in names:
        console.print(f"  {tool.name} push {name}")
    console.print(
        f"  python -m pipeline compile --target kubeflow --config my.yaml "
        f"--set cluster.kubeflow.image={image}"
    )
    console.print(f"  python -m pipeline replay --spec my-kubeflow.yaml --image {image} ...")
