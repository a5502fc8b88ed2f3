"""Import the class or function that a dotted path of the YAML names."""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Any

from pipeline.common.errors import ConfigError


def import_dotted(dotted: str, field: str) -> Any:
    """Return the class or function that a dotted path names.

    Args:
        dotted: `package.module.name`.
        field: Field of the YAML, for messages.

    Raises:
        ConfigError: The module cannot be imported, or has nothing callable with this name.
    """
    path, _, name = dotted.rpartition(".")
    try:
        module = importlib.import_module(path)
    except (Exception, SystemExit) as error:  # whatever the user's module raises at its import
        raise ConfigError(
            f"{field}={dotted}: importing {path} failed: {type(error).__name__}: {error}. "
            f"Use a dotted path that `python -c 'import {path}'` accepts in {os.getcwd()}."
        ) from None
    try:
        found = getattr(module, name, None)
    except Exception as error:  # a module's own __getattr__
        raise ConfigError(
            f"{field}={dotted}: {path}.{name} failed: {type(error).__name__}: {error}."
        ) from None
    if not callable(found):
        names = [each for each in dir(module) if each[0] != "_"]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {path}.{near[0]}?" if near else ""
        what = f"{name!r} of module {path} is a {type(found).__name__}, which cannot be called"
        if not hasattr(module, name):
            what = f"module {path} has no function or class {name!r}"
        raise ConfigError(f"{field}={dotted}: {what}.{hint} It has {', '.join(names)}.")
    return found
