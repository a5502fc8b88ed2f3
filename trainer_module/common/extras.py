"""Load names that need a package of an extra; without the package, the error names the extra."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import lazy_loader

_PACKAGES = ("pipeline", "components", "transform", "trainer_module", "shared_core")


def attach_stub(
    package: str, filename: str, *, extra: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, like `lazy_loader.attach_stub`.

    The extra `extra` of this project installs what the names of the `.pyi` file import.

    Raises:
        ModuleNotFoundError: When a name is used: a package that it imports is not installed.
    """
    import_name, list_names, names = lazy_loader.attach_stub(package, filename)

    def get(name: str) -> object:
        with _naming_extra(f"{package}.{name}", extra):
            return import_name(name)

    return get, list_names, names


def load(module: str, name: str, *, extra: str) -> Any:
    """Return an attribute of a module of another package.

    The extra `extra` of this project installs the package.

    Raises:
        ModuleNotFoundError: A package that the module imports is not installed.
    """
    with _naming_extra(f"{module.partition('.')[0]}.{name}", extra):
        return getattr(importlib.import_module(module), name)


@contextlib.contextmanager
def _naming_extra(what: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {missing}, which is not installed: "
            f"uv pip install 'tfx-largebatch[{extra}]'",
            name=error.name,
        ) from error
