"""Name layers and variables of a model the same way in each process.

Keras numbers unnamed layers over all models of a process: the `dense` of a first model is the
`dense_2` of a second, equal one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import keras

_SEEDS = re.compile(r"seed_generator(_\d+)?")


def layer_names(model: keras.Model) -> dict[str, str]:
    """Return a dict from each layer's name to its name in a process with no other model."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for layer in model._flatten_layers(include_self=True, recursive=True):
        kind = _snake_case(type(layer).__name__)
        if layer.name in names or not re.fullmatch(rf"{kind}(_\d+)?", layer.name):
            continue
        names[layer.name] = f"{kind}_{counts[kind]}" if counts[kind] else kind
        counts[kind] += 1
    return names


def model_paths(model: keras.Model) -> list[str]:
    """Return the path of each of `model.variables`, in order, without duplicates."""
    names = layer_names(model)
    return _number_duplicates(_renamed(variable.path, names) for variable in model.variables)


def optimizer_paths(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> list[str]:
    """Return the path of each of `optimizer.variables`, in order, without duplicates."""
    flat = {
        variable.path.replace("/", "_"): path.replace("/", "_")
        for variable, path in zip(model.variables, model_paths(model), strict=True)
    }
    longest_first = sorted(flat, key=len, reverse=True)

    def renamed(path: str) -> str:
        _, _, name = path.rpartition("/")
        known = next((each for each in longest_first if name.startswith(each)), None)
        return name if known is None else flat[known] + name.removeprefix(known)

    return _number_duplicates(renamed(variable.path) for variable in optimizer.variables)


def _renamed(path: str, names: dict[str, str]) -> str:
    parts = [names.get(part, part) for part in path.split("/")]
    return "/".join("seed_generator" if _SEEDS.fullmatch(part) else part for part in parts)


def _number_duplicates(paths: Iterable[str]) -> list[str]:
    counts: Counter[str] = Counter()
    found = []
    for path in paths:
        counts[path] += 1
        found.append(path if counts[path] == 1 else f"{path}#{counts[path]}")
    return found


def _snake_case(name: str) -> str:
    """Return the default layer name that Keras derives from a class name."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
