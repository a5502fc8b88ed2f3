"""Names that need a package of an extra: where it is not installed, the error says which extra."""

from __future__ import annotations

import importlib
from typing import Any

_OURS = ("pipeline", "components", "transform", "trainer_module")


def load(module: str, name: str, *, extra: str) -> Any:
    """Returns a module's name.

    Args:
        module: Its dotted name.
        name: What is wanted of it.
        extra: The extra of this project that brings what the module imports.

    Raises:
        ModuleNotFoundError: A package that it imports is not installed.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OURS:
            raise
        raise ModuleNotFoundError(
            f"{module.partition('.')[0]}.{name} needs {missing}, which is not installed: "
            f"pip install 'tfx-largebatch[{extra}]'",
            name=error.name,
        ) from error
