"""Check Keras names with Keras' source files, because importing Keras takes seconds.

So errors appear at once. Only definite errors are reported: a name that passes may still be
rejected when the object is created.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from shared_core.nearest import nearest

Kind = Literal["optimizer", "loss", "metric", "activation"]

_FOLDERS: dict[Kind, str] = {
    "optimizer": "optimizers",
    "loss": "losses",
    "metric": "metrics",
    "activation": "activations",
}
_NOT_SUGGESTED = {
    *("get", "serialize", "deserialize", "legacy", "schedules", "class_name", "config"),
    *("Loss", "Metric", "Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"),
    *("MeanMetricWrapper", "LossFunctionWrapper"),
}
_OWN = {"metric": ("acc",)}  # trainer_module/model/metrics.py


class _KnownNames(NamedTuple):
    names: frozenset[str]  # in lower case, without underscores
    choices: tuple[str, ...]  # as written in YAML


def check_keras_name(kind: Kind, name: str, *, field: str) -> None:
    """Check a name, ignoring case and underscores; dotted paths of user objects always pass."""
    known = _known_names(kind)
    if known is None or "." in name or _normalize(name) in known.names:
        return
    raise ValueError(
        f"{field}={name!r} is not a Keras {kind}; {nearest(name.lower(), known.choices)}"
    )


@functools.cache
def _known_names(kind: Kind) -> _KnownNames | None:
    """Return the names in Keras' files; None if the files do not have the known format.

    Public names are imports, in one of two files of a release. The file with `get` has a set of
    classes, and the other names that `get` takes as keys of a dict.
    """
    spec = importlib.util.find_spec("keras")
    public, aliases, members = set[str](), set[str](), set[str]()
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in (f"{_FOLDERS[kind]}/__init__.py", f"api/{_FOLDERS[kind]}/__init__.py"):
            for node in _nodes(Path(folder, path)):
                if isinstance(node, ast.ImportFrom):
                    public.update(alias.asname or alias.name for alias in node.names)
        for node in _nodes(Path(folder, "src", _FOLDERS[kind], "__init__.py")):
            if isinstance(node, ast.Set):
                members.update(each.id for each in node.elts if isinstance(each, ast.Name))
            keys = getattr(node, "keys", None) if isinstance(node, ast.Dict) else None
            for key in keys or [getattr(node, "slice", None)]:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    aliases.add(key.value)
    if not public:
        return None
    own = _OWN.get(kind, ())
    # As Keras writes them: adamw, but binary_accuracy.
    written = str.lower if kind == "optimizer" else _snake_case
    offered = {*aliases, *own, *(public if kind == "optimizer" else members or public)}
    choices = {written(name) for name in offered - _NOT_SUGGESTED}
    names = {*public, *aliases, *members, *own}
    return _KnownNames(frozenset(map(_normalize, names)), tuple(sorted(choices)))


def _nodes(file: Path) -> Iterator[ast.AST]:
    with contextlib.suppress(OSError, SyntaxError):
        yield from ast.walk(ast.parse(file.read_bytes()))


def _normalize(name: str) -> str:
    return name.lower().replace("_", "")


def _snake_case(name: str) -> str:
    """Return a class name in Keras' snake case: `binary_accuracy` for `BinaryAccuracy`."""
    parts = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parts).lower()
