"""Read the rows of a split, and sample some of them by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.types as types
from tfx.components.util import tfxio_utils
from tfx.types.artifact import Artifact

from components.arrow_example_gen.columns import Kind, as_lists, flat_values, kind_of
from components.arrow_example_gen.row_hash import row_hashes

_BYTES = 4 << 20  # of the rows that are hashed together: hashes take eight times as many
_LISTS: dict[Kind, pa.DataType] = {
    "int": pa.large_list(pa.int64()),
    "float": pa.large_list(pa.float32()),
    "string": pa.large_list(pa.large_binary()),
}

# Hashes `[rows]` of a batch, and the batch.
_Hashed = tuple[np.ndarray, pa.RecordBatch]


class SampleRows(beam.PTransform):
    """Return one batch with the rows of a split that have the smallest hashes, in that order.

    Equal rows have equal hashes and equal attributions, so that it does not matter which of them
    is taken. A worker holds at most 2 * `rows` rows and one batch. The columns are
    `large_list<float | int64 | large_binary>`, null where a row has no value, or of type null where
    no row has one.
    """

    def __init__(self, examples: Artifact, split: str, node: str, rows: int):
        """Sample at most `rows` rows; `node` names the reader in Beam's metrics."""
        super().__init__()
        self._examples, self._split, self._node, self._rows = examples, split, node, rows

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Return a collection with one batch, from TFRecord or Parquet files."""
        tfxio = tfxio_utils.get_split_tfxio(
            examples=[self._examples], split=self._split, telemetry_descriptors=[self._node]
        )
        batches: Any = pipeline | tfxio.BeamSource() | beam.FlatMap(_as_lists)
        return batches | beam.CombineGlobally(_SmallestHashes(self._rows))


def _as_lists(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts. A batch of a Parquet file is a whole row group."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        kind = kind_of(field.type)
        if types.is_null(field.type):
            columns[field.name] = column
        elif kind is not None:
            columns[field.name] = _lists_of(column, kind)
    lists = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    step = max(1, _BYTES * lists.num_rows // max(1, lists.nbytes))
    for start in range(0, lists.num_rows, step):
        yield lists.slice(start, step)


def _lists_of(column: pa.Array, kind: Kind) -> pa.Array:
    wanted = _LISTS[kind]
    lists = column if column.type == wanted else as_lists(column, kind)
    ends, values = flat_values(lists)
    if values.null_count:
        ends, values = flat_values(as_lists(column, kind))
    # An empty list would be a feature with values of length 0 in a tf.Example, which is an error.
    empty = np.append(np.diff(ends) == 0, False)
    return pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64(), mask=empty), values.cast(wanted.value_type)
    )


class _SmallestHashes(beam.CombineFn):
    """Keep the rows with the smallest hashes."""

    def __init__(self, rows: int):
        self._rows = rows

    def create_accumulator(self) -> list[_Hashed]:
        return []

    def add_input(self, accumulator: list[_Hashed], batch: pa.RecordBatch) -> list[_Hashed]:
        known = [field.name for field in batch.schema if not types.is_null(field.type)]
        accumulator.append((row_hashes(batch, known), batch))
        held = sum(len(hashes) for hashes, _ in accumulator)
        return self.compact(accumulator) if held > 2 * self._rows else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[_Hashed]]) -> list[_Hashed]:
        merged: list[_Hashed] = []
        for accumulator in accumulators:
            merged = self.compact([*merged, *accumulator])
        return merged

    def compact(self, accumulator: list[_Hashed]) -> list[_Hashed]:
        if not accumulator:
            return accumulator
        hashes = np.concatenate([hashes for hashes, _ in accumulator])
        order = np.argsort(hashes, kind="stable")[: self._rows]
        batch = _concatenated([batch for _, batch in accumulator])
        # A slice would be pickled with all rows of its batch.
        columns = [column.take(pa.array(order)) for column in batch.columns]
        return [(hashes[order], pa.RecordBatch.from_arrays(columns, batch.schema.names))]

    def extract_output(self, accumulator: list[_Hashed]) -> pa.RecordBatch:
        found = self.compact(accumulator)
        return found[0][1] if found else pa.RecordBatch.from_arrays([], [])


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches; a batch may lack columns of others."""
    try:
        schema = pa.unify_schemas([batch.schema for batch in batches])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"InputGradients: {error}: give all rows of a column one type.") from None

    def part(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        place = batch.schema.get_field_index(field.name)
        known = place >= 0 and not types.is_null(batch.schema.types[place])
        return batch.column(place) if known else pa.nulls(batch.num_rows, field.type)

    columns = [pa.concat_arrays([part(batch, field) for batch in batches]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema.names)
