"""Read the fitted numbers of a transform graph, which are kept under the names of their columns.

`transform.analyzers.fitted.keep` marks the tensors that hold them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

ATTRIBUTE = "_fitted"  # graph rewriters keep attributes that begin with an underscore
FIELDS = "_fitted_fields"
_FOLDER = "transform_fn"

Record = TypeVar("Record", bound=NamedTuple)


class Fitted(NamedTuple):
    """One kept tensor: the word that it was kept under, and numbers or texts.

    `fields` are the names along the first axis of a record, whose columns are along the last one;
    without fields, columns are along the first axis.
    """

    what: str
    fields: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray

    def by_column(self) -> dict[str, np.ndarray]:
        """Return column -> its values, of a record `[fields, ...]`; ValueError: other columns."""
        along = self.values if not self.fields else np.moveaxis(self.values, -1, 0)
        if len(along) != len(self.columns):
            raise ValueError(
                f"the transform graph holds {self.what} of {len(along)} columns, not of "
                f"{len(self.columns)}: another version wrote it; run Transform again"
            )
        return dict(zip(self.columns, along, strict=True))

    def record(self, kind: type[Record], values: np.ndarray) -> Record:
        """Return values whose first axis is `fields`, by these names; ValueError: it has others."""
        if self.fields != kind._fields:
            raise ValueError(
                f"the transform graph holds {self.what} of {self.fields}, not of {kind._fields}: "
                "another version wrote it; run Transform again"
            )
        return kind._make(values)


def fitted_numbers(uri: str) -> list[Fitted]:
    """Read what `keep` kept in the graph of the `transform_graph` artifact under `uri`.

    There are none where another `preprocessing_fn` made the graph.
    """
    import tensorflow as tf

    loaded: Any = tf.saved_model.load(f"{uri}/{_FOLDER}")
    function = loaded.transform_fn
    kept = [op for op in function.graph.get_operations() if ATTRIBUTE in op.node_def.attr]
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
    found = []
    for op, value in zip(kept, values, strict=True):
        what, *columns = _read(op, ATTRIBUTE)
        found.append(Fitted(what, tuple(_read(op, FIELDS)), tuple(columns), np.asarray(value)))
    return found


def _read(op: Any, attribute: str) -> list[str]:
    return [word.decode() for word in op.node_def.attr[attribute].list.s]
