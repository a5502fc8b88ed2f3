"""Check Keras names with Keras' source files, because importing Keras takes seconds.

So errors appear at once. Only definite errors are reported: a name that passes may still be
rejected when the object is created.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
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
    """Check a name, ignoring case and underscores; dotted paths of user objects always pass.

    Raises:
        ValueError: Keras has no such name. The message has the nearest one.
    """
    known = _known_names(kind)
    if known is None or "." in name or _normalize(name) in known.names:
        return
    raise ValueError(
        f"{field}={name!r} is not a Keras {kind}; {nearest(name.lower(), known.choices)}"
    )


@functools.cache
def _known_names(kind: Kind) -> _KnownNames | None:
    """Return the names in Keras' files; None if the files do not have the known format."""
    spec = importlib.util.find_spec("keras")
    found = _FileNames(set(), set(), set())
    for folder in spec.submodule_search_locations or () if spec else ():
        # Keras releases have their public names in one of these files.
        for path in (f"{_FOLDERS[kind]}/__init__.py", f"api/{_FOLDERS[kind]}/__init__.py"):
            found.public.update(_read(Path(folder, path)).public)
        inner = _read(Path(folder, "src", _FOLDERS[kind], "__init__.py"))
        found.aliases.update(inner.aliases)
        found.members.update(inner.members)
    if not found.public:
        return None
    names = {*found.public, *found.aliases, *found.members, *_OWN.get(kind, ())}
    written = (
        str.lower if kind == "optimizer" else _snake_case
    )  # as Keras: adamw, but binary_accuracy
    made = found.public if kind == "optimizer" else found.members or found.public
    offered = {*found.aliases, *_OWN.get(kind, ()), *made}
    choices = {written(name) for name in offered - _NOT_SUGGESTED}
    return _KnownNames(frozenset(map(_normalize, names)), tuple(sorted(choices)))


class _FileNames(NamedTuple):
    """The names in a file of Keras: imports, string keys, members of sets.

    If the file's `get` accepts a name, it is a key or a member.
    """

    public: set[str]
    aliases: set[str]
    members: set[str]


def _read(file: Path) -> _FileNames:
    found = _FileNames(set(), set(), set())
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.public.update(alias.asname or alias.name for alias in node.names)
        if isinstance(node, ast.Set):
            found.members.update(each.id for each in node.elts if isinstance(each, ast.Name))
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            keys = [*node.keys]
        elif isinstance(node, ast.Subscript):
            keys = [node.slice]
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.aliases.add(key.value)
    return found


def _normalize(name: str) -> str:
    return name.lower().replace("_", "")


def _snake_case(name: str) -> str:
    """Return a class name in Keras' snake case: `binary_accuracy` for `BinaryAccuracy`."""
    parts = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parts).lower()
