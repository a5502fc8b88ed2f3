"""Find and digest the user's modules behind a function, without running them."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path


def code_digests(modules: Iterable[str], *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return a digest of the bytes of each user module that the given modules depend on.

    This includes the modules, the packages that contain them, and everything they import, anywhere
    in their text, recursively. Python's modules and installed packages are excluded, except the
    packages of the given modules. Imports with a name made at run time
    (`importlib.import_module(name)`) are not found.

    `"__main__"` is the running program; `without` are top-level packages that are not the user's.

    Returns:
        Module to 16 hexadecimal digits.

    Raises:
        ModuleNotFoundError: One of `modules` is not found.
        SyntaxError: Python cannot read a module.
    """
    modules, without = sorted(set(modules)), {*without, *sys.stdlib_module_names} - {"__main__"}
    given = {name.partition(".")[0] for name in modules}
    digests: dict[str, str] = {}
    seen, waiting = set[str](), list(modules)
    while waiting:
        name = waiting.pop()
        package = name.partition(".")[0]
        if name in seen or package in without:
            continue
        seen.add(name)
        file = _file(name)
        if file is None and name in modules:
            raise ModuleNotFoundError(
                f"no module {name!r}: install its package, or run from the folder that holds it.",
                name=name,
            )
        if file is None or (is_library_file(str(file)) and package not in given):
            continue
        source = file.read_bytes()
        digests[name] = hashlib.sha256(source).hexdigest()[:16]
        if parent := name.rpartition(".")[0]:
            waiting.append(parent)
        is_package = file.name == "__init__.py"
        waiting += _imported(ast.parse(source, filename=str(file)), name, is_package=is_package)
    return digests


def _file(name: str) -> Path | None:
    """Return a module's file, without importing the packages that contain it."""
    if name == "__main__":
        path = getattr(sys.modules[name], "__file__", None)
        return None if path is None else Path(path)
    package, *inner = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if not inner:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    places = [Path(place, *inner) for place in spec.submodule_search_locations or ()]
    files = [file for each in places for file in (each / "__init__.py", Path(f"{each}.py"))]
    return next(filter(Path.is_file, files), None)


def is_installed(spec: ModuleSpec) -> bool:
    """Return whether a module belongs to Python or an installed package."""
    if spec.origin in ("built-in", "frozen"):
        return True
    places = [*(spec.submodule_search_locations or ()), spec.origin]
    path = next((place for place in places if place), None)
    return path is not None and is_library_file(path)


@functools.cache
def is_library_file(path: str) -> bool:
    """Return whether a file or folder belongs to Python or an installed package."""
    if {"site-packages", "dist-packages"} & set(Path(path).parts):
        return True
    return Path(path).resolve().is_relative_to(Path(sysconfig.get_path("stdlib")).resolve())


def _imported(tree: ast.AST, name: str, *, is_package: bool) -> Iterator[str]:
    """Yield what import statements may mean: `from a import b` is a's name b or its module b."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
