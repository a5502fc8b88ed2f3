"""Rows that have a value for each of some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from components.arrow_example_gen.columns import Rows


class WithValues(beam.PTransform):
    """What another transform reads, without the rows that lack a value of a column."""

    def __init__(self, rows: beam.PTransform, required: Sequence[str]):
        """Read rows and drop some.

        Args:
            rows: reads `Rows`.
            required: columns; NaN, infinities and empty texts are no values.
        """
        super().__init__()
        self._rows, self._required = rows, list(required)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the rows and drop those without a required value."""
        rows: Any = pipeline | self._rows
        return rows | "WithValues" >> beam.Map(_with_values, self._required)


def _with_values(rows: Rows, required: Sequence[str]) -> Rows:
    places, batch = rows
    kept = have_values(batch, required)
    return places[kept], batch.filter(pa.array(kept))


def have_values(batch: pa.RecordBatch, required: Sequence[str]) -> np.ndarray:
    """Return whether each row has a value for each of the columns, bool `[rows]`."""
    found = np.ones(batch.num_rows, bool)
    for name in required:
        place = batch.schema.get_field_index(name)
        found &= _has_value(batch[place]) if place >= 0 else False
    return found


def _has_value(column: pa.LargeListArray) -> np.ndarray:
    values = column.values
    if types.is_floating(values.type):
        usable = np.isfinite(values.to_numpy())
    elif types.is_integer(values.type):
        usable = np.ones(len(values), bool)
    else:
        usable = pc.greater(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    counted = np.concatenate([[0], np.cumsum(usable)])
    offsets = column.offsets.to_numpy()
    return counted[offsets[1:]] > counted[offsets[:-1]]
