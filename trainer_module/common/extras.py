"""Public names that need an extra: where it is not installed, the error says which one."""

from __future__ import annotations

from collections.abc import Callable

import lazy_loader

_PACKAGES = ("pipeline", "components", "transform", "trainer_module")


def attach_stub(
    package: str, filename: str, *, extra: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, as `lazy_loader.attach_stub`.

    Args:
        package: `__name__` of the package.
        filename: Its `__file__`; the names are in the `.pyi` beside it.
        extra: The extra of this project that brings what the names import.

    Raises:
        ModuleNotFoundError: On the use of a name: a package that it imports is not installed.
    """
    import_name, list_names, names = lazy_loader.attach_stub(package, filename)

    def get(name: str) -> object:
        try:
            return import_name(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing in _PACKAGES:
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs {missing}, which is not installed: "
                f"pip install 'tfx-largebatch[{extra}]'",
                name=error.name,
            ) from error

    return get, list_names, names
