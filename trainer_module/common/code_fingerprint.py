"""Find and digest the user's code behind a function, without running it."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

_LIBRARY_FOLDERS = tuple(
    str(Path(folder).resolve())
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


def code_fingerprint(modules: Iterable[str], *, without: Iterable[str] = ()) -> str:
    """Return one digest of `code_digests`, the same in each process and on each machine."""
    digests = code_digests(modules, without=without)
    return _digest("".join(f"{name}={digest}\n" for name, digest in sorted(digests.items())))


def code_digests(modules: Iterable[str], *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return a digest for each user module that the given modules depend on.

    This includes the modules, the packages that contain them, and everything they import, anywhere
    in their text, recursively. Python's modules and installed packages are excluded. A given module
    that is installed stands for its whole package. Comments and formatting do not count. Imports
    with a name made at run time (`importlib.import_module(name)`) are not found.

    Args:
        modules: Dotted names of modules; "__main__" is the running program.
        without: Top-level packages that are not the user's.

    Returns:
        Module to 16 hexadecimal digits.

    Raises:
        ModuleNotFoundError: One of `modules` is not found.
    """
    modules, without = sorted(set(modules)), {*without, *sys.stdlib_module_names}
    found: dict[str, str] = {}
    waiting: list[str] = []
    for name in modules:
        spec = _spec(name)
        if spec is None:
            raise ModuleNotFoundError(
                f"no module {name!r}: install its package, or run from the folder that holds it.",
                name=name,
            )
        package = name.partition(".")[0]
        if package not in without and is_installed(spec):
            found[package] = _digest_of_package(package)
        else:
            waiting.append(name)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] in without:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None or (is_installed(spec) and name != "__main__"):
            continue
        waiting += _parents(name)
        source = _source(spec)
        if source is not None:
            tree = ast.parse(source, filename=spec.origin or name)
            found[name] = _digest(ast.unparse(tree))
            waiting += _imported(tree, name, is_package=bool(spec.submodule_search_locations))
    return found


def _spec(name: str) -> ModuleSpec | None:
    """Like importlib.util.find_spec, but do not import a module's packages to find it."""
    if name == "__main__":
        path = getattr(sys.modules["__main__"], "__file__", None)
        return None if path is None else importlib.util.spec_from_file_location(name, path)
    path = None
    if parents := _parents(name):
        parent = _spec(parents[-1])
        if parent is None or parent.submodule_search_locations is None:
            return None
        path = list(parent.submodule_search_locations)
    for finder in sys.meta_path:
        if find := getattr(finder, "find_spec", None):
            try:
                spec = find(name, path)
            except KeyError:  # a folder without __init__.py, in a package that is not imported yet
                spec = _spec_of_folder(name, path or [])
            if spec is not None:
                return spec
    return None


def _spec_of_folder(name: str, path: Iterable[str]) -> ModuleSpec | None:
    """Like importlib's path finder for a namespace package, but independent of sys.modules."""
    folders = [str(Path(place, name.rpartition(".")[2])) for place in path]
    folders = [folder for folder in folders if Path(folder).is_dir()]
    if not folders:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = folders
    return spec


def _parents(name: str) -> list[str]:
    """Return the packages that contain a module, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


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
    return any(Path(path).resolve().is_relative_to(folder) for folder in _LIBRARY_FOLDERS)


def _source(spec: ModuleSpec) -> str | None:
    """Return a module's text; None if it has none (a folder, compiled code)."""
    get_source = getattr(spec.loader, "get_source", None)
    return get_source(spec.name) if get_source is not None else None


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


def _digest_of_package(package: str) -> str:
    spec = _spec(package)
    assert spec is not None
    files = [
        (file.relative_to(folder).as_posix(), file)
        for folder in spec.submodule_search_locations or ()
        for file in Path(folder).rglob("*.py")
    ]
    if not files and spec.origin:
        files = [(Path(spec.origin).name, Path(spec.origin))]
    digest = hashlib.sha256()
    for name, file in sorted(files):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
