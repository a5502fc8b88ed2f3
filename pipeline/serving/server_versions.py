"""Find the server for a model: releases of TensorFlow Serving, Google's prebuilt containers.

A server can load models of its TensorFlow version or an older one; TensorFlow promises no more.
"""

from __future__ import annotations

import re

from pipeline.common.errors import ConfigError

# The newest release for each TensorFlow version, from the tags of github.com/tensorflow/serving.
# The models of this project need 2.16 or newer.
SERVING_RELEASES = {
    "2.16": "2.16.1",
    "2.17": "2.17.1",
    "2.18": "2.18.1",
    "2.19": "2.19.1",
    "2.20": "2.20.0",
}
# Google's list of prebuilt containers ends here (read in 2026).
NEWEST_PREBUILT = "2.15"
PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-{device}.{version}:latest"
_PREBUILT_IMAGE = re.compile(r"^\w+-docker\.pkg\.dev/vertex-ai/prediction/tf2-")


def minor_version(tensorflow: str) -> str:
    """Return the minor version, such as `2.16` of `2.16.2`."""
    return ".".join(tensorflow.split(".")[:2])


def serving_release(tensorflow: str, field: str) -> str:
    """Return the release of TensorFlow Serving for a model.

    Args:
        tensorflow: TensorFlow version that wrote the model.
        field: The field that a user can set instead, for the message.

    Raises:
        ConfigError: No release is known.
    """
    release = SERVING_RELEASES.get(minor_version(tensorflow))
    if release is None:
        raise ConfigError(
            f"{field}: TensorFlow {tensorflow} wrote the model, and no release of TensorFlow "
            f"Serving for it is known here (the newest is {max(SERVING_RELEASES.values())}). "
            "Name the tag of a tensorflow/serving image of at least that version."
        )
    return release


def is_prebuilt(image: str) -> bool:
    """Return whether an image is one of Google's prebuilt TensorFlow containers."""
    return _PREBUILT_IMAGE.match(image) is not None


def vertex_image(tensorflow: str, *, accelerated: bool) -> str:
    """Return Google's prebuilt container for a model.

    Raises:
        ConfigError: There is no container for the model's TensorFlow version.
    """
    device = "gpu" if accelerated else "cpu"
    minor = minor_version(tensorflow)
    newest = PREBUILT.format(device=device, version=NEWEST_PREBUILT.replace(".", "-"))
    if _as_numbers(minor) > _as_numbers(NEWEST_PREBUILT):
        release = SERVING_RELEASES.get(minor, minor)
        raise ConfigError(
            f"cluster.vertex.server.image: TensorFlow {tensorflow} wrote the model, and Google's "
            f"prebuilt containers end with {NEWEST_PREBUILT}. Copy tensorflow/serving:{release} to "
            "your Artifact Registry and name it there; or try the older server, "
            f"{newest}, after check-serving with its version (docs/serving.md)."
        )
    return newest


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
