"""The Containerfile beside this module with its arguments' values: an image's contents as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pipeline.image.stacks import ImageStack

USER_ID = 1000
"""Who a node is in the image, as the Containerfile says."""

STEP = "== "
"""Begins the lines that a build tells its user; all else that it writes is for the log."""

_TEMPLATE = Path(__file__).with_name("Containerfile")


class Contents(NamedTuple):
    """What an image is made of.

    Attributes:
        stack: its TFX, TensorFlow and Python.
        base: the image below.
        version: of this package.
        dependencies, code: digests of what is installed.
    """

    stack: ImageStack
    base: str
    version: str
    dependencies: str
    code: str


def containerfile(contents: Contents) -> str:
    """Returns the text; docker (BuildKit), podman and buildah take it without an argument."""
    stack = contents.stack
    values = {
        "BASE": contents.base,
        "BEAM_IMAGE": f"docker.io/apache/beam_python{stack.python}_sdk:{stack.pin('apache-beam')}",
        "STACK": stack.name,
        "PYTHON": stack.python,
        "UV_VERSION": stack.pin("uv"),
        "VERSION": contents.version,
        "DEPENDENCIES": contents.dependencies,
        "CODE": contents.code,
    }
    return re.sub(
        r"^ARG (\w+)$",
        lambda found: f"ARG {found[1]}={values[found[1]]}",
        _TEMPLATE.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
