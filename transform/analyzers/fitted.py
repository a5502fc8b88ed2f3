"""Fitted numbers: kept in the transform graph under the names of their columns.

What an analyzer found is a constant of the saved graph. `keep` gives the tensor that the graph
computes with a name and the columns that it is of, so that `shared_core.fitted` reads the very
numbers that the model's inputs are scaled by; nothing is computed a second time, and the analysis
has no more to do. A tensor that no output depends on (the mean of a column under `scale: none`) is
not in the saved graph, and so not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared_core.fitted import ATTRIBUTE, FIELDS, Record
from transform.block import tf

PRESENT = "present"  # what the number of rows with a value is kept as


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
        _write(kept.op, ATTRIBUTE, (what, *columns))
        _write(kept.op, FIELDS, fields)
    return kept


def keep_record(record: Record, what: str, columns: Sequence[str]) -> Record:
    """Keep a record of tensors `[..., n]` under the names of its fields; see `keep`."""
    stacked = keep(tf.stack(record), what, columns, fields=record._fields)
    return type(record)._make(tf.unstack(stacked, len(record)))


def _write(op: tf.Operation, attribute: str, words: Sequence[str]) -> None:
    from tensorflow.core.framework import attr_value_pb2

    encoded = attr_value_pb2.AttrValue.ListValue(s=[word.encode() for word in words])
    op._set_attr(attribute, attr_value_pb2.AttrValue(list=encoded))
