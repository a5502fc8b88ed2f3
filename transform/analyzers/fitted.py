"""Fitted numbers: kept in the transform graph under the names of their columns, and read from it.

What an analyzer found is a constant of the saved graph. `keep` gives the tensor that the graph
computes with a name and the columns that it is of, so that `fitted_numbers` reads the very numbers
that the model's inputs are scaled by; nothing is computed a second time, and the analysis has no
more to do. A tensor that no output depends on (the mean of a column under `scale: none`) is not in
the saved graph, and so not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from transform.block import tf

_ATTRIBUTE = "_fitted"  # graph rewriters keep attributes that begin with an underscore
_FIELDS = "_fitted_fields"

PRESENT = "present"  # what the number of rows with a value is kept as

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


@dataclass(frozen=True)
class FittedColumn:
    """Numbers of one column; None, or not there, where its steps asked for none.

    Attributes:
        statistics: `FittedStatistics` of a scaled column.
        order: `OrderStatistics` of a scaled column, where any column wants quantiles.
        values: Everything else, by the word that it was kept under: `filling`, `most_frequent`,
            `boundaries`, `quantiles`, ...; of a record (`power`), a number for each of its fields.
    """

    statistics: Any = None
    order: Any = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int | None:
        """Rows with a value; None where a version wrote the graph that did not count them."""
        if PRESENT in self.values:
            return int(self.values[PRESENT])
        return None if self.statistics is None else int(self.statistics.count)


def keep(
    values: tf.Tensor, what: str, columns: Sequence[str], *, fields: Sequence[str] = ()
) -> tf.Tensor:
    """Return `values` as a kept tensor, from which the outputs have to be computed.

    They depend on no row of the data; `what` is a word for them. `columns` are along the first
    axis, or along the last one of a record, the names of whose first axis are `fields`.
    """
    kept = tf.identity(values, name=f"fitted/{what}")
    if not tf.executing_eagerly():
        _write(kept.op, _ATTRIBUTE, (what, *columns))
        _write(kept.op, _FIELDS, fields)
    return kept


def keep_record(record: Record, what: str, columns: Sequence[str]) -> Record:
    """Keep a record of tensors `[..., n]` under the names of its fields; see `keep`."""
    stacked = keep(tf.stack(record), what, columns, fields=record._fields)
    return type(record)._make(tf.unstack(stacked, len(record)))


def fitted_numbers(uri: str) -> list[Fitted]:
    """Read what `keep` kept in the graph of the `transform_graph` artifact under `uri`.

    There are none where another `preprocessing_fn` made the graph.
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
    found = []
    for op, value in zip(kept, values, strict=True):
        what, *columns = _read(op, _ATTRIBUTE)
        found.append(Fitted(what, tuple(_read(op, _FIELDS)), tuple(columns), np.asarray(value)))
    return found


def _write(op: tf.Operation, attribute: str, words: Sequence[str]) -> None:
    from tensorflow.core.framework import attr_value_pb2

    encoded = attr_value_pb2.AttrValue.ListValue(s=[word.encode() for word in words])
    op._set_attr(attribute, attr_value_pb2.AttrValue(list=encoded))


def _read(op: tf.Operation, attribute: str) -> list[str]:
    return [word.decode() for word in op.node_def.attr[attribute].list.s]
