"""Analyze a tf.data.Dataset: its steps, and which of them are random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

# Steps that change the speed, not the elements.
_WITHOUT_EFFECT = ("Prefetch", "Options", "Model", "Finalize")
# Steps that create the iterator of their input when their own is created, and no other later.
_EAGER = ("Batch", "PaddedBatch", "Map", "Filter", "Take", "Skip", "Zip", "Unbatch", "Rebatch")
_SHUFFLES = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")


def steps_of(dataset: tf.data.Dataset) -> Iterator[tuple[str, tf.data.Dataset]]:
    """Yield (kind, dataset) of each step, the last first: ("Batch", ...), ("Shuffle", ...)."""
    yield kind_of(dataset), dataset
    for below in _inputs(dataset):
        yield from steps_of(below)


def functions_of(dataset: tf.data.Dataset) -> list[tf.types.experimental.ConcreteFunction]:
    """Return the functions of a step, each with its concrete `function`."""
    return list(_private(dataset, "_functions")())


def has_reshuffle(dataset: tf.data.Dataset) -> bool:
    """Return whether each new iterator of the dataset has another order."""
    return any(
        kind == "Shuffle" and _private(each, "_reshuffle_each_iteration")
        for kind, each in steps_of(dataset)
    )


def reshuffles_at_once(dataset: tf.data.Dataset) -> bool:
    """Return whether the n-th iterator has the n-th order however far earlier ones were read.

    A shuffle draws its order when its iterator is created. Below `repeat`, `cache`, `concatenate`
    or another shuffle, that happens later or never.
    """
    return _reshuffles_at_once(dataset, at_once=True)


def unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Return whether the dataset shuffles with a seed that no other process has."""
    for kind, each in steps_of(dataset):
        if kind in ("Shuffle", "Random") and _no_seed(*_seeds(each)):
            return True
        for operation in _operations(each):
            if operation.type in _SHUFFLES and _no_seed(*operation.inputs[2:4]):
                return True
    return False


def random_operations(dataset: tf.data.Dataset) -> list[str]:
    """Return TensorFlow's random operations in the dataset's functions, without duplicates."""
    found = {
        operation.type
        for _, each in steps_of(dataset)
        for operation in _operations(each)
        if operation.type.startswith(_RANDOM) and "Dataset" not in operation.type
    }
    return sorted(found)


def _reshuffles_at_once(dataset: tf.data.Dataset, *, at_once: bool) -> bool:
    kind = kind_of(dataset)
    if kind == "Shuffle" and _private(dataset, "_reshuffle_each_iteration") and not at_once:
        return False
    at_once = at_once and (kind in _EAGER or kind in _WITHOUT_EFFECT)
    return all(_reshuffles_at_once(below, at_once=at_once) for below in _inputs(dataset))


def _inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    return _private(dataset, "_inputs")()


def _seeds(dataset: tf.data.Dataset) -> tuple[tf.Tensor, tf.Tensor]:
    return _private(dataset, "_seed"), _private(dataset, "_seed2")


def _private(dataset: tf.data.Dataset, name: str) -> Any:
    """Return an attribute without a public name in TensorFlow; other versions may lack it."""
    try:
        return getattr(dataset, name)
    except AttributeError:
        raise ValueError(
            f"a {type(dataset).__name__} of TensorFlow {tf.__version__} has no {name!r}, which "
            "identifies the dataset: give NumPy arrays or a list of batches in its place, "
            "or install a TensorFlow that this package's requirements allow."
        ) from None


def kind_of(dataset: tf.data.Dataset) -> str:
    """Return "Batch", "Shuffle", ... of a dataset."""
    name = type(dataset).__name__.lstrip("_").removesuffix("V2").removesuffix("V1")
    return name.removesuffix("Dataset").removeprefix("Parallel")


def _constant(value: tf.Tensor) -> np.ndarray | None:
    if isinstance(value, (bool, int, np.generic, np.ndarray)):
        return np.asarray(value)
    if not isinstance(value, tf.Tensor):
        return None
    if value.dtype in (tf.variant, tf.resource):
        return None
    found = value.numpy() if hasattr(value, "numpy") else tf.get_static_value(value)
    return None if found is None else np.asarray(found)


def _operations(dataset: tf.data.Dataset) -> list[tf.Operation]:
    return [
        operation
        for function in functions_of(dataset)
        for operation in function.function.graph.get_operations()
    ]


def _no_seed(*seeds: tf.Tensor | None) -> bool:
    values = [_constant(seed) for seed in seeds]
    return all(value is not None and value == 0 for value in values)
