"""The stacks that an image can hold: lock files, and a base image with matching Python and libc."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from pipeline.common.errors import ConfigError

_CHECKOUT = Path(__file__).resolve().parents[2]
_IN_WHEEL = Path(__file__).resolve().parent / "requirements"  # pyproject.toml puts them there
COMPILED = ("pyfarmhash",)
"""Pinned packages without a wheel, which take a C++ compiler: its authors publish none."""


class ImageStack(NamedTuple):
    """One stack as an image.

    Attributes:
        name: The version of TFX, such as `1.16`.
        base: The default base image, which has Debian's Python.
        python: The Python version that `image.txt` is resolved for.
    """

    name: str
    base: str
    python: str

    @property
    def constraints(self) -> Path:
        """The file with every pin of the stack, tools included; constrains the user's packages."""
        return _requirements() / f"stack-{self.name}" / "lock.txt"

    @property
    def dependencies(self) -> Path:
        """The file with the pins, with hashes, that the pipeline needs: what an image contains."""
        return _requirements() / f"stack-{self.name}" / "image.txt"

    @property
    def cuda(self) -> Path:
        """The file with NVIDIA's CUDA libraries, with hashes: TensorFlow's extra `and-cuda`."""
        return _requirements() / f"stack-{self.name}" / "cuda.txt"

    def pin(self, package: str) -> str:
        """Return the version of a package in the lock file.

        Raises:
            LookupError: The lock file does not pin the package.
        """
        text = self.constraints.read_text(encoding="utf-8")
        found = re.search(rf"^{re.escape(package)}==([^\s;]+)", text, re.MULTILINE)
        if found is None:
            raise LookupError(f"{self.constraints} does not pin {package}")
        return found[1]


STACKS = {
    "1.16": ImageStack("1.16", "docker.io/library/debian:bookworm-slim", "3.11"),
    "1.21": ImageStack("1.21", "docker.io/library/debian:trixie-slim", "3.13"),
}


def stack_named(name: str | None) -> ImageStack:
    """Return the named stack; by default this machine's, so that it runs what is compiled here.

    Raises:
        ConfigError: No stack has this name.
    """
    name = name or ".".join(metadata.version("tfx").split(".")[:2])
    if name not in STACKS:
        raise ConfigError(f"--stack {name}: no lock file. Use --stack {' or '.join(STACKS)}.")
    return STACKS[name]


def split_dependencies(text: str) -> tuple[str, str]:
    """Return the pins that have wheels, and the pins to compile, both with their hashes."""
    wheels, compiled = [], []
    for entry in re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.MULTILINE):
        name = entry.partition("==")[0]
        (compiled if name in COMPILED else wheels).append(entry)
    return "".join(wheels), "".join(compiled)


def _requirements() -> Path:
    checkout = _CHECKOUT / "requirements"
    return checkout if checkout.is_dir() else _IN_WHEEL
