"""Records of blessed models: one small file each, in a folder beside the artifacts.

A file is named by the time in microseconds, so that the latest is the last in the order of names,
and says where the model is and which execution blessed it.
"""

from __future__ import annotations

import hashlib
import json
import time

from tfx.dsl.io import fileio

from shared_core.atomic_files import atomic_write_text

_SUFFIX = ".json"


def write_record(folder: str, model_uri: str, **facts: str) -> str:
    """Write a record at once, so that no reader sees part of it; return its path."""
    digest = hashlib.sha256(model_uri.encode()).hexdigest()[:8]
    path = f"{folder}/{time.time_ns() // 1000:016d}-{digest}{_SUFFIX}"
    atomic_write_text(path, json.dumps({"version": 1, "model": model_uri, **facts}, indent=1))
    return path


def latest_model(folder: str) -> str | None:
    """Return the folder of the latest blessed model that still exists; None without one.

    Raises:
        ValueError: a record is damaged.
    """
    if not fileio.exists(folder):
        return None
    for name in sorted(fileio.listdir(folder), reverse=True):
        if not str(name).endswith(_SUFFIX):
            continue
        try:
            with fileio.open(f"{folder}/{name}") as stream:
                uri = json.loads(stream.read())["model"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder}/{name}: not a record of a blessed model ({error}); delete it to compare "
                "with the one before it."
            ) from None
        if has_model(uri):
            return uri
    return None


def has_model(uri: str) -> bool:
    """Return whether the artifact's folder holds a model, as TFX's Trainer writes it."""
    return fileio.exists(f"{uri}/Format-Serving/saved_model.pb")
