"""Analyze and identify a tf.data.Dataset: its steps, their random order, functions and values."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import tensorflow as tf

from trainer_module.common.fingerprint import array_digest, to_fingerprint
from trainer_module.common.tensors import Json, Tensors

# Steps that change the speed, not the elements.
_WITHOUT_EFFECT = ("Prefetch", "Options", "Model", "Finalize")
# Steps that create the iterator of their input when their own is created, and no other later.
_EAGER = ("Batch", "PaddedBatch", "Map", "Filter", "Take", "Skip", "Zip", "Unbatch", "Rebatch")
_SHUFFLES = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")
# Steps and options that change the speed, not the elements.
_IGNORED = (
    *_WITHOUT_EFFECT, "_name", "_num_parallel_calls",
    "_num_parallel_reads", "_deterministic", "_use_inter_op_parallelism", "_preserve_cardinality",
    "_force_synchronous", "_use_unbounded_threadpool", "_buffer_output_elements",
    "_prefetch_input_elements", "_filename", "_variant_tensor_attr",
)  # fmt: skip
_RANDOM_STATE = ("seed_generator_state", "StateVar")  # in names of variables
_CHUNK_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10


def _steps_of(dataset: tf.data.Dataset) -> Iterator[tuple[str, tf.data.Dataset]]:
    """Yield (kind, dataset) of each step, the last first: ("Batch", ...), ("Shuffle", ...)."""
    yield kind_of(dataset), dataset
    for below in dataset._inputs():
        yield from _steps_of(below)


def has_reshuffle(dataset: tf.data.Dataset) -> bool:
    """Return whether each new iterator of the dataset has another order."""
    return any(
        kind == "Shuffle" and each._reshuffle_each_iteration for kind, each in _steps_of(dataset)
    )


def reshuffles_at_once(dataset: tf.data.Dataset, *, at_once: bool = True) -> bool:
    """Return whether the n-th iterator has the n-th order however far earlier ones were read.

    A shuffle draws its order when its iterator is created. Below `repeat`, `cache`, `concatenate`
    or another shuffle, that happens later or never.
    """
    kind = kind_of(dataset)
    if kind == "Shuffle" and dataset._reshuffle_each_iteration and not at_once:
        return False
    at_once = at_once and (kind in _EAGER or kind in _WITHOUT_EFFECT)
    return all(reshuffles_at_once(below, at_once=at_once) for below in dataset._inputs())


def unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Return whether the dataset shuffles with a seed that no other process has."""
    for kind, each in _steps_of(dataset):
        if kind in ("Shuffle", "Random") and _no_seed(each._seed, each._seed2):
            return True
        for operation in _operations(each):
            if operation.type in _SHUFFLES and _no_seed(*operation.inputs[2:4]):
                return True
    return False


def random_operations(dataset: tf.data.Dataset) -> list[str]:
    """Return TensorFlow's random operations in the dataset's functions, without duplicates."""
    found = {
        operation.type
        for _, each in _steps_of(dataset)
        for operation in _operations(each)
        if operation.type.startswith(_RANDOM) and "Dataset" not in operation.type
    }
    return sorted(found)


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
        for function in dataset._functions()
        for operation in function.function.graph.get_operations()
    ]


def _no_seed(*seeds: tf.Tensor | None) -> bool:
    values = [_constant(seed) for seed in seeds]
    return all(value is not None and value == 0 for value in values)


def dataset_fingerprint(
    dataset: tf.data.Dataset, *, restored: Collection[tf.Variable] = ()
) -> dict[str, Json]:
    """Return what identifies a dataset as JSON values by step.

    It has the options and files of each step, the code of its functions, and the values of the
    tensors and variables that these hold. Python generators, lookup tables and the variables in
    `restored`, which a checkpoint restores, do not count.
    """
    own = {id(part) for variable in restored for part in _parts(variable)}
    facts: dict[str, Json] = {"elements": str(dataset.element_spec)}
    steps = [(kind, each) for kind, each in _steps_of(dataset) if kind not in _WITHOUT_EFFECT]
    for place, (kind, each) in enumerate(reversed(steps)):
        step = _options(each)
        held: list[str] = []
        for number, function in enumerate(each._functions()):
            step[f"function {number}"] = to_fingerprint(function._func, without=own)
            held += _held_values(function.function.graph, own)
        step |= {f"captured {number}": value for number, value in enumerate(held)}
        facts[f"{place} {kind}"] = step
    return facts


def files_identity(files: Sequence[str]) -> list[str]:
    """Return size and digest of each file, independent of its name.

    Files are read whole, except `.gz` files: these end with a checksum of their content, so only
    the end is read.
    """
    found = [(path, tf.io.gfile.stat(path)) for path in files]
    return [_identity(path, stat.length, stat.mtime_nsec) for path, stat in found]


@functools.lru_cache(maxsize=1024)
def _identity(path: str, size: int, mtime_nsec: int) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as stream:
        if path.endswith(".gz"):
            stream.seek(max(0, size - _TAIL_BYTES))
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return f"{size} bytes {digest.hexdigest()[:16]}"


def _options(dataset: tf.data.Dataset) -> dict[str, Json]:
    """Return the plain values, arrays and files that a dataset was created with."""
    found: dict[str, Json] = {}
    for name, value in vars(dataset).items():
        leaves = tf.nest.flatten(value)
        if name == "_filenames":
            names = [getattr(each, "_tensors", each) for each in leaves]
            if not any(isinstance(each, tf.data.Dataset) for each in names):
                found["files"] = _names_and_sizes(names)
        elif (
            name not in _IGNORED
            and leaves
            and all(isinstance(v, (bool, int, float, str)) or tf.is_tensor(v) for v in leaves)
        ):
            found[name.strip("_")] = " ".join(map(_value_text, leaves))
    return found


def _names_and_sizes(paths: Tensors) -> list[str]:
    """Return name and size of files, without folders, because a folder can be moved."""
    names = [name for each in tf.nest.flatten(paths) for name in np.ravel(each).tolist()]
    found: list[str] = []
    for path in map(tf.compat.as_text, names):
        size = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None
        found.append(f"{path.rpartition('/')[2]} {size} bytes")
    return found


def _value_text(value: Tensors) -> str:
    if not isinstance(value, tf.Tensor):
        return str(value)
    if not _is_readable(value):
        return ""
    return str(np.asarray(value).item()) if value.shape.rank == 0 else array_digest(value.numpy())


def _is_readable(value: tf.Tensor) -> bool:
    return hasattr(value, "numpy") and value.dtype not in (tf.variant, tf.resource)


def _held_values(graph: tf.Graph, own: set[int]) -> list[str]:
    """Return digests of what a function's graph captured, without variables in `own`."""
    tensors = [outer for outer, _ in graph.captures if _is_readable(outer)]
    variables: list[tf.Variable] = []
    with contextlib.suppress(AssertionError):  # a variable was garbage-collected
        variables = [each for each in graph.variables if id(each) not in own]
    # Layers without a seed have another one in each process.
    variables = [v for v in variables if not any(part in v.name for part in _RANDOM_STATE)]
    return [array_digest(np.asarray(each)) for each in (*tensors, *variables)]


def _parts(variable: tf.Variable) -> Iterator[tf.Variable]:
    """Yield a variable of TensorFlow or Keras, on each replica."""
    value = variable if isinstance(variable, tf.Variable) else variable.value
    yield from (variable, value, *getattr(value, "values", ()))
