"""Fill in the arguments of the Containerfile next to this module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pipeline.image.image_labels import CudaLabel
from pipeline.image.stacks import ImageStack

USER_ID = 1000
"""The user of a node in the image, as in the Containerfile."""

STEP = "== "
"""Prefix of the lines that are shown as progress; all other output goes to the log."""

_TEMPLATE = Path(__file__).with_name("Containerfile")
_CUDA_PART = re.compile(r"^# \[cuda\n(.*?)^# cuda\]\n", re.MULTILINE | re.DOTALL)


class Contents(NamedTuple):
    """The contents of an image.

    Attributes:
        stack: Its TFX, TensorFlow and Python.
        base: The base image.
        version: Version of this package.
        dependencies: Digest of the dependencies.
        code: Digest of the packages.
        cuda: Value of the label `tfx-largebatch.cuda`, see `image_labels.py`.
        cuda_dependencies: Digest of the CUDA packages; None: an image without them.
    """

    stack: ImageStack
    base: str
    version: str
    dependencies: str
    code: str
    cuda: CudaLabel = "false"
    cuda_dependencies: str | None = None


def containerfile(contents: Contents) -> str:
    """Return the text; docker (BuildKit), podman and buildah build it without build arguments."""
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
        "CUDA": contents.cuda,
        "CUDA_DEPENDENCIES": contents.cuda_dependencies,
    }
    text = _CUDA_PART.sub(
        lambda found: found[1] if contents.cuda_dependencies else "",
        _TEMPLATE.read_text(encoding="utf-8"),
    )
    return re.sub(
        r"^ARG (\w+)$",
        lambda found: f"ARG {found[1]}={values[found[1]]}",
        text,
        flags=re.MULTILINE,
    )
