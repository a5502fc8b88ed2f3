"""Import objects by their dotted path."""

from __future__ import annotations

import importlib
from typing import Any

from shared_core.nearest import nearest


def import_dotted(path: str, *, field: str) -> Any:
    """Return the object at `package.module.name`.

    Args:
        path: A dotted path.
        field: The configuration field with the path, for the error message.

    Raises:
        ValueError: The path has no dot, the module cannot be imported, or it lacks the name.
    """
    module_path, _, name = path.rpartition(".")
    if not module_path:
        raise ValueError(
            f"{field}={path!r} is not a dotted path: write package.module.function, for a module "
            "that Python can import from where the pipeline runs."
        )
    try:
        module = importlib.import_module(module_path)
    except ImportError as error:
        raise ValueError(
            f"{field}={path!r} cannot be imported ({error}): check the spelling, and that the "
            "package is installed or its folder is on PYTHONPATH."
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [n for n in dir(module) if not n.startswith("_")]
        raise ValueError(
            f"{field}={path!r}: module {module_path!r} has no {name!r}; {nearest(name, public)}"
        ) from None
