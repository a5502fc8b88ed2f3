"""Names that Keras knows, read from its files: importing it takes seconds of TensorFlow.

So errors appear at once. Only certain errors are reported: a name that passes may still be refused
when the object is created.
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

_ROOMS: dict[Kind, str] = {
    "optimizer": "optimizers",
    "loss": "losses",
    "metric": "metrics",
    "activation": "activations",
}
_NO_CHOICE = {
    *("get", "serialize", "deserialize", "legacy", "schedules", "class_name", "config"),
    *("Loss", "Metric", "Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"),
    *("MeanMetricWrapper", "LossFunctionWrapper"),
}
_OWN = {"metric": ("acc",)}  # trainer_module/model/metrics.py


class _Known(NamedTuple):
    names: frozenset[str]  # in lower case, without underscores
    choices: tuple[str, ...]  # as a YAML would have them


def check_keras_name(kind: Kind, name: str, *, field: str) -> None:
    """Looks a name up, whatever its case and underscores; dotted paths are the user's own.

    Args:
        kind: What it is to be.
        name: As the configuration has it.
        field: The configuration's field.

    Raises:
        ValueError: Keras has nothing of that name; the nearest one is offered.
    """
    known = _known(kind)
    if known is None or "." in name or _plain(name) in known.names:
        return
    raise ValueError(
        f"{field}={name!r} is not a Keras {kind}; {nearest(name.lower(), known.choices)}"
    )


@functools.cache
def _known(kind: Kind) -> _Known | None:
    """Returns what Keras' files name, or None where they do not look as they are known to."""
    spec = importlib.util.find_spec("keras")
    found = _Found(set(), set(), set())
    for folder in spec.submodule_search_locations or () if spec else ():
        # A release has its public names in the first or the second.
        for path in (f"{_ROOMS[kind]}/__init__.py", f"api/{_ROOMS[kind]}/__init__.py"):
            found.public.update(_read(Path(folder, path)).public)
        inner = _read(Path(folder, "src", _ROOMS[kind], "__init__.py"))
        found.aliases.update(inner.aliases)
        found.members.update(inner.members)
    if not found.public:
        return None
    names = {*found.public, *found.aliases, *found.members, *_OWN.get(kind, ())}
    written = str.lower if kind == "optimizer" else _snake  # Keras: adamw, and binary_accuracy
    made = found.public if kind == "optimizer" else found.members or found.public
    offered = {*found.aliases, *_OWN.get(kind, ()), *made}
    choices = {written(name) for name in offered - _NO_CHOICE}
    return _Known(frozenset(map(_plain, names)), tuple(sorted(choices)))


class _Found(NamedTuple):
    """What a file of Keras names: imports, keys that are texts, members of sets.

    Where its `get` takes a name, that is a key or a member.
    """

    public: set[str]
    aliases: set[str]
    members: set[str]


def _read(file: Path) -> _Found:
    found = _Found(set(), set(), set())
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


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _snake(name: str) -> str:
    """`binary_accuracy` of `BinaryAccuracy`, as Keras has it."""
    parts = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parts).lower()
