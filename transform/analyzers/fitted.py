"""Fitted numbers: kept in the transform graph under the names of their columns, and read from it.

What an analyzer found is a constant of the saved graph. `keep` gives the tensor that the graph
computes with a name and the columns that it is of, so that `fitted_numbers` reads the very numbers
that the model's inputs are scaled by; nothing is computed a second time, and the analysis has no
more to do. A tensor that no output depends on (the mean of a column under `scale: none`) is not in
the saved graph, and so not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

_ATTRIBUTE = "_fitted"  # graph rewriters keep attributes that begin with an underscore


class Fitted(NamedTuple):
    """One kept tensor."""

    what: str
    columns: tuple[str, ...]
    values: np.ndarray


def keep(values: tf.Tensor, what: str, columns: Sequence[str]) -> tf.Tensor:
    """`values` themselves; the outputs have to be computed from what this returns.

    Args:
        values: any tensor that depends on no row of the data.
        what: a word for what it holds.
        columns: the columns that it is of, by the axis that its reader knows.
    """
    kept = tf.identity(values, name=f"fitted/{what}")
    if not tf.executing_eagerly():
        words = [word.encode() for word in (what, *columns)]
        attribute = attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(s=words))
        kept.op._set_attr(_ATTRIBUTE, attribute)
    return kept


def fitted_numbers(uri: str) -> list[Fitted]:
    """Reads what `keep` kept.

    Args:
        uri: of the `transform_graph` artifact, or `TFTransformOutput`'s folder.

    Returns:
        The kept tensors; none where another `preprocessing_fn` made the graph.
    """
    import tensorflow_transform as tft

    folder = f"{uri}/{tft.TFTransformOutput.TRANSFORM_FN_DIR}"
    loaded: Any = tf.saved_model.load(folder)
    function = loaded.transform_fn
    kept = [op for op in function.graph.get_operations() if _ATTRIBUTE in op.node_def.attr]
    # Large constants are not in the graph but come with the function, after its arguments.
    captured = function.captured_inputs
    places = function.inputs[len(function.inputs) - len(captured) :]
    feeds = {
        place.name: value.numpy()
        for place, value in zip(places, captured, strict=True)
        if value.dtype not in (tf.resource, tf.variant)
    }
    with tf.compat.v1.Session(graph=function.graph) as session:
        values = session.run([op.outputs[0] for op in kept], feeds)
    return [
        Fitted(*_words(op), values=np.asarray(value))
        for op, value in zip(kept, values, strict=True)
    ]


def _words(op: tf.Operation) -> tuple[str, tuple[str, ...]]:
    what, *columns = (word.decode() for word in op.node_def.attr[_ATTRIBUTE].list.s)
    return what, tuple(columns)
