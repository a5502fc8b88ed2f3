"""Digest what a TensorFlow graph computes, the same in each process that traces it.

Names are numbered within a process, so the digest has none: an operation is its type, its
attributes and the digests of its inputs, and a function is the digests of what it returns. Parts
that do not affect the result (names of resources, devices, metadata) are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from trainer_module.common.fingerprint import array_digest

_IGNORED_ATTRIBUTES = (
    "metadata", "shared_name", "container", "token", "config", "config_proto", "executor_type",
)  # fmt: skip
_PYTHON_OPERATIONS = ("PyFunc", "EagerPyFunc", "PyFuncStateless")
_CHUNK_BYTES = 8 << 20
# Types of resources that datasets create internally: their state is not data.
_DATASET_RESOURCES = ("SeedGenerator", "MemoryCache", "Iterator")
# Parts of the names of variables that hold random state.
RANDOM_STATE = ("seed_generator_state", "StateVar")

_Message: TypeAlias = Any  # a TensorFlow protocol buffer


class GraphDigest:
    """Digests of functions and nodes.

    Attributes:
        unreadable: Parts whose content cannot be read: Python code, random state.
    """

    def __init__(self, library: Iterable[_Message]) -> None:
        """Create digests for nodes that may call these FunctionDefs."""
        self._library = {function.signature.name: function for function in library}
        self._functions: dict[str, str] = {}
        self.unreadable: set[str] = set()

    def function(self, name: str) -> str:
        """Return the digest of a function of the library."""
        if name not in self._functions:
            self._functions[name] = "itself"  # for a recursive call
            function = self._library[name]
            arguments = [argument.name for argument in function.signature.input_arg]
            ends = [function.ret[output.name] for output in function.signature.output_arg]
            controls = sorted(function.control_ret.values())
            self._functions[name] = self.nodes(function.node_def, arguments, ends, controls)
        return self._functions[name]

    def nodes(
        self,
        nodes: Iterable[_Message],
        arguments: Sequence[str],
        ends: Sequence[str],
        controls: Sequence[str] = (),
    ) -> str:
        """Return the digest of what some nodes compute.

        Args:
            nodes: NodeDefs.
            arguments: Names of the nodes whose values the caller passes, in order.
            ends: Returned values: names of nodes with their output, in order.
            controls: Names of nodes that run for their side effects.
        """
        by_name = {node.name: node for node in nodes}
        known = {name: f"argument {place}" for place, name in enumerate(arguments)}
        waiting = [_node(each) for each in (*ends, *controls)]
        begun: set[str] = set()
        while waiting:
            name = waiting[-1]
            if name in known:
                waiting.pop()
            elif name in begun:  # all its inputs are known, except itself in a loop
                known[name] = self._operation(by_name[name], known, by_name)
            else:
                begun.add(name)
                needs = map(_node, by_name[name].input)
                waiting += [each for each in needs if each not in known and each not in begun]
        parts = [_with_output(end, known) for end in ends]
        return _digest([*parts, *sorted(known[_node(each)] for each in controls)])

    def _operation(
        self, node: _Message, known: Mapping[str, str], nodes: Mapping[str, _Message]
    ) -> str:
        if node.op == "GeneratorDataset":  # its functions only call Python
            self.unreadable.add("a Python generator")
            return node.op
        if node.op in _PYTHON_OPERATIONS:
            self.unreadable.add(f"a Python function ({node.op})")
        parts = [node.op]
        data = [each for each in node.input if not each.startswith("^")]
        if node.op == "LookupTableImportV2":  # the order of its keys is undefined
            keys, values = (_array(nodes[_node(each)].attr["value"].tensor) for each in data[1:])
            parts.append(_table_digest(keys, values))
        elif node.op == "InitializeTableFromTextFileV2":  # its folder can be moved
            (path,) = _array(nodes[_node(data[1])].attr["value"].tensor).ravel()
            parts.append(_file_digest(tf.compat.as_text(path)))
        elif node.op == "AssignVariableOp" and self._is_random_state(nodes.get(_node(data[0]))):
            pass
        else:
            parts += [_with_output(each, known) for each in data]
        controls = (each for each in node.input if each.startswith("^"))
        parts += sorted(known.get(_node(each), "itself") for each in controls)
        for key in sorted(node.attr):
            if not key.startswith("_") and key not in _IGNORED_ATTRIBUTES:
                parts.append(f"{key}={self._attribute(node.attr[key])}")
        return _digest(parts)

    def _is_random_state(self, handle: _Message | None) -> bool:
        if handle is None or handle.op != "VarHandleOp":  # the caller's variable
            return False
        name = handle.attr["shared_name"].s.decode()
        found = any(part in name for part in RANDOM_STATE)
        if found:
            self.unreadable.add("random numbers with a state")
        return found

    def _attribute(self, value: _Message) -> str:
        if value.HasField("func"):
            return self._called(value.func)
        if value.HasField("list") and value.list.func:
            return " ".join(self._called(function) for function in value.list.func)
        if value.HasField("tensor"):
            if value.tensor.dtype == tf.resource.as_datatype_enum:
                held = value.tensor.resource_handle_val[0].maybe_type_name
                if not any(name in held for name in _DATASET_RESOURCES):
                    self.unreadable.add("a resource that TensorFlow cannot write down")
                return "resource"
            return array_digest(_array(value.tensor))
        return value.SerializeToString(deterministic=True).hex()

    def _called(self, function: _Message) -> str:
        return self.function(function.name) if function.name in self._library else function.name


def _table_digest(keys: np.ndarray, values: np.ndarray) -> str:
    """Return a digest of a table's content, independent of its order."""
    if keys.ndim == 1:
        order = np.argsort(keys, kind="stable")
    else:
        order = sorted(range(len(keys)), key=lambda place: repr(keys[place]))
    return f"table {array_digest(keys[order])} {array_digest(values[order])}"


def _file_digest(path: str) -> str:
    digest = hashlib.sha256()
    hash_file(digest, path)
    return f"file {digest.hexdigest()[:16]}"


def hash_file(digest: hashlib._Hash, path: str) -> None:
    """Add a file's bytes to a hashlib digest, in chunks."""
    with tf.io.gfile.GFile(path, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)


def _array(tensor: _Message) -> np.ndarray:
    """Return a tensor's value; `make_ndarray` does not read strings that C++ wrote."""
    if tensor.dtype != tf.string.as_datatype_enum:
        return tf.make_ndarray(tensor)
    with tf.device("CPU:0"):
        return np.asarray(tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy())


def _node(end: str) -> str:
    """Return the node of an input: "^node", "node", "node:0", "node:out:0"."""
    return end.lstrip("^").partition(":")[0]


def _with_output(end: str, known: Mapping[str, str]) -> str:
    """Return the digest of an input, with the number of the node's output."""
    output = end.partition(":")[2] or "0"
    return f"{known.get(_node(end), 'itself')}:{output}"


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
