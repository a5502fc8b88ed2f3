"""A fingerprint of the code that a node runs, so that TFX's cache notices an edited function.

User functions are dotted paths (`package.module.function`), and TFX keys its cache on the path
alone: without this, an edited `preprocessing_fn` would be answered with yesterday's output.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from pipeline.config import ConfigError


def fingerprint(modules: Iterable[str]) -> str:
    """SHA-256 (hex, 16 digits) over the sources of modules and whole packages.

    Args:
        modules: dotted names; a package stands for every `.py` file below it.

    Raises:
        ConfigError: a module cannot be found.
    """
    digest = hashlib.sha256()
    for name in sorted(set(modules)):
        digest.update(name.encode())
        for file in _sources(name):
            digest.update(file.name.encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _sources(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise ConfigError(
            f"cannot find the Python module {name!r}. Install its package, or run from the folder "
            "that holds it."
        )
    if spec.submodule_search_locations:
        return sorted(
            file
            for folder in spec.submodule_search_locations
            for file in Path(folder).rglob("*.py")
        )
    return [Path(spec.origin)] if spec.origin else []
