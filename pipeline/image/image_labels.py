"""The labels of an image on this machine: can a GPU node run in it?

In an image that `image build` made, the label `tfx-largebatch.cuda` is "true" if the image has
NVIDIA's CUDA libraries, "false" if not, and "base" if the base image must provide them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from pipeline.image.builders import NAMES, Builder

CudaLabel = Literal["true", "false", "base"]

_CUDA = "tfx-largebatch.cuda"
_STACK = "tfx-largebatch.stack"


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


def image_labels(image: str, *, timeout: float = 3.0) -> list[Mapping[str, str]]:
    """Return the labels of an image from each builder on this machine that has it.

    Args:
        image: Name of the image. It is not pulled.
        timeout: Time limit in seconds of each builder; one that exceeds it is ignored.
    """
    found = []
    for name in NAMES:
        try:
            known = json.loads(Builder(name).inspect(image, timeout=timeout) or "")
            config = known["OCIv1"]["config"] if name == "buildah" else known[0]["Config"]
        except (ValueError, LookupError, TypeError):  # no image, or another program of this name
            continue
        found.append(config.get("Labels") or {})
    return found
