"""Identify what affects a dataset's elements besides its steps: functions, their values, files.

The values that a function captured count with their current content: variables, tensors, lookup
tables, other datasets. So do the contents of ragged and sparse tensors, and the files of
`Dataset.load`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import structure

from trainer_module.common.fingerprint import array_digest
from trainer_module.common.json_values import Json
from trainer_module.data.dataset_steps import functions_of, numbered_steps
from trainer_module.data.graph_digest import RANDOM_STATE, GraphDigest, hash_file

# Options that change the elements, in addition to those in `dataset_facts`.
_OPTIONS = (
    "_start", "_stop", "_step", "_cycle_length", "_block_length", "_num_shards", "_index",
    "_shift", "_stride", "_padded_shapes", "_padding_values", "_record_defaults", "_select_cols",
    "_compression_type", "_header", "_query", "_row_shape", "_stop_on_empty_dataset",
)  # fmt: skip
_IGNORE_STATE = 1  # value of DatasetToGraphV2's external_state_policy


class _Unreadable(Exception):
    """The content of a value cannot be read; the message describes the value."""


def captured_facts(
    dataset: tf.data.Dataset, *, restored: Collection[tf.Variable] = ()
) -> tuple[dict[str, Json], set[str]]:
    """Return what each step of a dataset captured, as JSON, and the parts that cannot be read.

    Args:
        dataset: The tf.data.Dataset.
        restored: Variables that a checkpoint restores: their values do not identify the data.
    """
    facts: dict[str, Json] = {}
    unreadable: set[str] = set()
    own = {id(handle) for variable in restored for handle in _handles(variable)}
    for place, kind, each in numbered_steps(dataset):
        found = {
            **_options(each),
            **_content(each, unreadable),
            **_functions(each, own, unreadable),
        }
        if found:
            facts[f"{place} {kind}"] = found
    return facts, unreadable


def _options(dataset: tf.data.Dataset) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _OPTIONS:
        value = getattr(dataset, name, None)
        if value is not None:
            parts = [_option(each) for each in tf.nest.flatten(value)]
            found[name.strip("_")] = " ".join(parts)
    return found


def _option(value: tf.Tensor) -> str:
    if isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
        value = value.numpy()
        return str(value.item()) if value.ndim == 0 else array_digest(value)
    return str(value)


def _content(dataset: tf.data.Dataset, unreadable: set[str]) -> dict[str, str]:
    """Return digests of ragged and sparse tensors, of saved files and of hidden datasets."""
    found: dict[str, str] = {}
    if isinstance(path := getattr(dataset, "_path", None), str):
        found["files"] = _saved_files(path)
    tensors = getattr(dataset, "_tensors", None) or []
    if any(each.dtype == tf.variant for each in tensors):
        spec = dataset._structure if hasattr(dataset, "_structure") else dataset.element_spec
        if "Slice" in type(dataset).__name__:
            spec = tf.nest.map_structure(lambda each: each._batch(None), dataset.element_spec)
        parts = tf.nest.flatten(structure.from_tensor_list(spec, tensors), expand_composites=True)
        found["tensors"] = " ".join(_value_or_note(each, unreadable) for each in parts)
    if type(dataset).__name__ == "_VariantDataset":
        found["dataset"] = _value_or_note(dataset._variant_tensor, unreadable)
    return found


def _value_or_note(value: tf.Tensor, unreadable: set[str]) -> str:
    try:
        return _value(value, unreadable)
    except _Unreadable as error:
        unreadable.add(str(error))
        return "not read"


def _functions(dataset: tf.data.Dataset, own: set[int], unreadable: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    captured: list[str] = []
    for number, function in enumerate(functions_of(dataset)):
        graph = function.function.graph
        try:
            definition = graph.as_graph_def()
        except ValueError:  # protocol buffers are limited to 2 GiB
            unreadable.add("a function of more than 2 GiB")
            continue
        digest = GraphDigest(definition.library.function)
        found[f"function {number}"] = digest.nodes(
            definition.node,
            [tensor.op.name for tensor in graph.inputs],
            [tensor.name for tensor in tf.nest.flatten(graph.outputs)],
            [operation.name for operation in graph.control_outputs],
        )
        unreadable |= digest.unreadable
        captured += _captured(graph, own, unreadable)
    return found | {f"captured {number}": value for number, value in enumerate(captured)}


def _captured(graph: tf.Graph, own: set[int], unreadable: set[str]) -> list[str]:
    """Return digests of the values that a function's graph captured, except those in `own`."""
    random = _random_handles(graph)
    found: list[str] = []
    for outer, _ in graph.captures:
        if id(outer) in own:
            continue
        try:
            if id(outer) in random:
                raise _Unreadable("random numbers with a state")
            found.append(_value(outer, unreadable))
        except _Unreadable as error:
            unreadable.add(str(error))
    return found


def _value(value: tf.Tensor, unreadable: set[str]) -> str:
    """Return a digest of a tensor's value, or of the resource that it is a handle of."""
    if not isinstance(value, tf.Tensor) or not hasattr(value, "numpy"):
        raise _Unreadable(f"a {type(value).__name__}")
    if value.dtype == tf.variant:
        return _dataset_digest(value, unreadable)
    if value.dtype != tf.resource:
        return array_digest(np.asarray(value))
    handle_data = getattr(value, "_handle_data", None)
    if handle_data is not None and handle_data.shape_and_type:
        dtype = tf.dtypes.as_dtype(handle_data.shape_and_type[0].dtype)
        try:
            with tf.device(value.device):
                read = tf.raw_ops.ReadVariableOp(resource=value, dtype=dtype)
            return array_digest(np.asarray(read))
        except tf.errors.OpError:
            raise _Unreadable("a variable without a value") from None
    # A table: TensorFlow serializes it with its types in a dataset. Nothing is run.
    holder = tf.data.Dataset.from_tensors(0).map(
        lambda _: tf.raw_ops.LookupTableSizeV2(table_handle=value)
    )
    return _dataset_digest(holder._variant_tensor, unreadable)


def _dataset_digest(variant: tf.Tensor, unreadable: set[str]) -> str:
    """Return a digest of a dataset for which Python has only the tensor."""
    try:
        text = tf.raw_ops.DatasetToGraphV2(
            input_dataset=variant,
            external_state_policy=_IGNORE_STATE,
            strip_device_assignment=True,
        ).numpy()
        definition = tf.compat.v1.GraphDef.FromString(text)
    except (tf.errors.OpError, ValueError):
        raise _Unreadable("a dataset within a function that TensorFlow cannot write down") from None
    digest = GraphDigest(definition.library.function)
    ends = [node.name for node in definition.node if node.op == "_Retval"]
    found = digest.nodes(definition.node, [], ends)
    unreadable |= digest.unreadable
    return f"dataset {found}"


def _random_handles(graph: tf.Graph) -> set[int]:
    """Return the handles of variables that hold random state."""
    try:
        variables = graph.variables
    except AssertionError:  # a variable was garbage-collected
        return set()
    return {
        id(handle)
        for variable in variables
        if any(part in variable.name for part in RANDOM_STATE)
        for handle in _handles(variable)
    }


def _handles(variable: tf.Variable) -> Iterator[tf.Tensor]:
    """Yield the handles of a variable of TensorFlow or Keras, on each replica."""
    value = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)
    for each in getattr(value, "values", None) or (value,):
        if (handle := getattr(each, "handle", None)) is not None:
            yield handle


def _saved_files(path: str) -> str:
    """Return a digest of the files that `Dataset.save` wrote, independent of their folder."""
    files = [
        "/".join((folder, name))
        for folder, _, names in tf.io.gfile.walk(path)
        for name in names
        if name.endswith(".snapshot")
    ]
    digest = hashlib.sha256()
    # The parent folder of the shards has a random name.
    for file in sorted(files, key=lambda file: file.split("/")[-2:]):
        hash_file(digest, file)
        digest.update(b"\0")
    return f"{len(files)} files {digest.hexdigest()[:16]}"
