"""Read the rows of a split, and sample some of them by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.types as types
from tfx.components.util import tfxio_utils
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.arrow_example_gen.columns import Kind, as_lists, flat_values, kind_of
from components.arrow_example_gen.row_hash import row_hashes
from shared_core.nearest import nearest

_GROUP = 1024  # rows of one Parquet file
_BYTES = 4 << 20  # of the rows that are hashed together: hashes take eight times as many
_LISTS: dict[Kind, pa.DataType] = {
    "int": pa.large_list(pa.int64()),
    "float": pa.large_list(pa.float32()),
    "string": pa.large_list(pa.large_binary()),
}

# Hashes `[rows]` of a batch, and the batch.
_Hashed = tuple[np.ndarray, pa.RecordBatch]


def check_split(examples: Artifact, split: str) -> None:
    """Raise ValueError unless the examples have the split."""
    splits = artifact_utils.decode_split_names(examples.split_names)
    if split not in splits:
        raise ValueError(
            f"InputGradients: split={split!r} is not in the examples under {examples.uri}; "
            f"{nearest(split, splits)}"
        )


class ReadRows(beam.PTransform):
    """Read the rows of splits as record batches, from TFRecord or Parquet files.

    The columns are `large_list<float | int64 | large_binary>`, null where a row has no value, or of
    type null where no row has one.
    """

    def __init__(self, examples: Artifact, splits: Sequence[str], node: str):
        """Read `splits` of `examples`; `node` names the reader in Beam's metrics."""
        super().__init__()
        self._examples, self._splits, self._node = examples, splits, node

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Return the batches."""
        parts = []
        for split in self._splits:
            tfxio = tfxio_utils.get_split_tfxio(
                examples=[self._examples], split=split, telemetry_descriptors=[self._node]
            )
            parts.append(pipeline | f"Batches[{split}]" >> tfxio.BeamSource())
        batches: Any = parts | beam.Flatten() | beam.FlatMap(_as_lists)
        return batches


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


class SampleRows(beam.PTransform):
    """Return one batch with the rows that have the smallest hashes, in that order.

    Equal rows have equal hashes and equal attributions, so that it does not matter which of them
    is taken. A worker holds at most 2 * `rows` rows and one batch.
    """

    def __init__(self, rows: int):
        """Sample at most this number of rows."""
        super().__init__()
        self._rows = rows

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[pa.RecordBatch]:
        """Return a collection with one batch."""
        sample: Any = batches | beam.CombineGlobally(_SmallestHashes(self._rows))
        return sample


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
        return [(hashes[order], take(batch, order))]

    def extract_output(self, accumulator: list[_Hashed]) -> pa.RecordBatch:
        found = self.compact(accumulator)
        return found[0][1] if found else pa.RecordBatch.from_arrays([], [])


def take(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Return rows by number. A slice would be pickled with all rows of its batch."""
    indices = pa.array(rows)
    columns = [column.take(indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches; a batch may lack columns of others."""
    found: dict[str, set[pa.DataType]] = {}
    for batch in batches:
        for field in batch.schema:
            kinds = found.setdefault(field.name, set())
            if not types.is_null(field.type):
                kinds.add(field.type)
    columns = []
    for name, kinds in found.items():
        if len(kinds) > 1:
            raise ValueError(
                f"InputGradients: column {name!r} has values of the types "
                f"{' and '.join(sorted(str(kind.value_type) for kind in kinds))}: give all rows "
                "one type."
            )
        kind = next(iter(kinds), pa.null())
        parts = []
        for batch in batches:
            place = batch.schema.get_field_index(name)
            known = place >= 0 and not types.is_null(batch.schema.types[place])
            parts.append(batch.column(place) if known else pa.nulls(batch.num_rows, kind))
        columns.append(pa.concat_arrays(parts))
    return pa.RecordBatch.from_arrays(columns, list(found))


def split_into_groups(
    sample: pa.RecordBatch, slices: Sequence[str], what: str
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of each group of rows, and its rows, after checking the sample.

    Args:
        sample: The sampled rows.
        slices: Columns that the examples must have.
        what: Split and place of the examples, for messages.

    Raises:
        ValueError: There is no row, or no column of `slices`.
    """
    rows = sample.num_rows
    if not rows:
        raise ValueError(
            f"InputGradients: {what} has no row: name another split, or give the examples more "
            "rows."
        )
    missing = [name for name in slices if name not in sample.schema.names]
    if missing:
        raise ValueError(
            f"InputGradients: slices={list(slices)}: column {missing[0]!r} is in none of the "
            f"rows of {what}; {nearest(missing[0], sorted(sample.schema.names))}"
        )
    for start in range(0, rows, _GROUP):
        yield start // _GROUP, take(sample, np.arange(start, min(start + _GROUP, rows)))
