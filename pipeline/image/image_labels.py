"""The labels of an image on this machine: can a GPU node run in it?

In an image that `image build` made, the label `tfx-largebatch.cuda` is "true" if the image has
NVIDIA's CUDA libraries, "false" if not, and "base" if the base image must provide them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Literal

from pipeline.image.builders import NAMES, Name

CudaLabel = Literal["true", "false", "base"]

_CUDA = "tfx-largebatch.cuda"
_STACK = "tfx-largebatch.stack"
_SECONDS = 3.0
"""For all builders together; one that does not answer knows nothing."""


def cuda_label(cuda: bool | None, base: str | None) -> CudaLabel:
    """Return the CUDA label of an image.

    Args:
        cuda: Whether the image gets the CUDA packages; None: not specified, it gets none.
        base: The base image, if one other than the stack's was specified.
    """
    if cuda:
        return "true"
    return "base" if cuda is False and base is not None else "false"


def has_no_cuda(image: str) -> bool:
    """Return whether an image is on this machine, is built by this project, and has no CUDA.

    False if nothing is known: no builder has the image, or none answers within seconds.
    """
    found = image_labels(image)
    return bool(found) and all(
        labels.get(_CUDA) == "false" or (_CUDA not in labels and _STACK in labels)
        for labels in found
    )


def image_labels(image: str, *, seconds: float = _SECONDS) -> list[Mapping[str, str]]:
    """Return the labels of an image from each builder on this machine that has it.

    No image is pulled. A builder that is broken, slow or not installed is ignored.

    Args:
        image: Name of the image.
        seconds: Time limit in seconds for all builders together.
    """
    asked: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            if shutil.which(name) is None:
                continue
            # A file, because a child of a killed builder would keep a pipe open.
            output = stack.enter_context(tempfile.TemporaryFile())
            with contextlib.suppress(OSError):
                asked.append((_start(_inspect(name, image), output), output))
        deadline = time.monotonic() + seconds
        found = [_labels(_output(process, output, deadline)) for process, output in asked]
    return [labels for labels in found if labels is not None]


def _inspect(name: Name, image: str) -> list[str]:
    if name == "buildah":
        return ["buildah", "inspect", "--type", "image", image]
    return [name, "image", "inspect", image]


def _start(command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _output(process: subprocess.Popen[bytes], output: IO[bytes], deadline: float) -> bytes:
    """Return what a builder wrote; b"" if it failed or exceeded the deadline."""
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return b""
    output.seek(0)
    return output.read() if code == 0 else b""


def _labels(text: bytes) -> Mapping[str, str] | None:
    """Return the labels in the output of `inspect`; None if it has no image."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        return None
    image = said[0] if isinstance(said, list) and said else said
    if not isinstance(image, dict):
        return None
    # docker and podman write Config, buildah OCIv1.config.
    config = image.get("Config")
    if not isinstance(config, dict):
        config = (image.get("OCIv1") or {}).get("config") or {}
    return config.get("Labels") or {}
