"""Find the server for a model: releases of TensorFlow Serving.

A server can load models of its TensorFlow version or an older one; TensorFlow promises no more.
"""

from __future__ import annotations

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
