"""Write the build context: the `Containerfile` next to this module, lock files and packages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.image import sources
from pipeline.image.image_labels import cuda_label
from pipeline.image.stacks import ImageStack, split_dependencies

_TEMPLATE = Path(__file__).with_name("Containerfile")
_CUDA_PART = re.compile(r"^# \[cuda\n(.*?)^# cuda\]\n", re.MULTILINE | re.DOTALL)


def write_context(
    folder: Path,
    stack: ImageStack,
    packages: Sequence[Path],
    *,
    base: str | None = None,
    cuda: bool | None = None,
) -> None:
    """Write a folder that docker (BuildKit), podman and buildah build without build arguments.

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
    values = {
        "BASE": base or stack.base,
        "BEAM_IMAGE": f"docker.io/apache/beam_python{stack.python}_sdk:{stack.pin('apache-beam')}",
        "STACK": stack.name,
        "PYTHON": stack.python,
        "UV_VERSION": stack.pin("uv"),
        "VERSION": sources.version(),
        "DEPENDENCIES": sources.digest(folder, "*.txt"),
        "CODE": sources.digest(code),
        "CUDA": cuda_label(cuda, base),
    }
    if cuda:
        (folder / "cuda.txt").write_bytes(stack.cuda.read_bytes())
        values["CUDA_DEPENDENCIES"] = sources.digest(folder, "cuda.txt")
    text = _CUDA_PART.sub(r"\1" if cuda else "", _TEMPLATE.read_text(encoding="utf-8"))
    text = re.sub(r"(?m)^ARG (\w+)$", lambda found: f"{found[0]}={values[found[1]]}", text)
    (folder / "Containerfile").write_text(text)
