"""Tolerance for the results of a traced function in batches of different sizes."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.checks.randomness import graph_nodes

# Operations that round no value, or each one alone.
_NO_SUMS = {"Cast", "ConcatV2", "Const", "ExpandDims", "GatherV2", "Identity", "Pack"}
_NO_SUMS |= {"Placeholder", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "Transpose"}


def rounding_tolerance(graph: tf.Graph) -> float:
    """Return the relative tolerance by the least precise dtype in which the graph adds up.

    In a batch of another size, a row uses other kernels and is rounded differently (on GPUs to the
    10 bits of TF32).
    """
    nodes = (node for node in graph_nodes(graph) if node.op not in _NO_SUMS)
    used = {value.type for node in nodes for value in node.attr.values()}
    if used & {tf.bfloat16.as_datatype_enum, tf.float16.as_datatype_enum}:
        return 5e-2
    if tf.float32.as_datatype_enum in used:
        return 1e-3 if tf.config.list_physical_devices("GPU") else 1e-4
    return 1e-8
