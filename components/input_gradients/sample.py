"""Read the records of a split, and sample some of them by their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from tfx.components.util import examples_utils, tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact

from components.arrow_example_gen.columns import Kind, as_lists, kind_of
from components.arrow_example_gen.examples import ExampleEncoder
from shared_core.nearest import nearest

_GROUP = 1024  # rows of one Parquet file
_RECORD = "record"


def check_split(examples: Artifact, split: str) -> None:
    """Raise ValueError unless the examples have the split."""
    splits = artifact_utils.decode_split_names(examples.split_names)
    if split not in splits:
        raise ValueError(
            f"InputGradients: split={split!r} is not in the examples under {examples.uri}; "
            f"{nearest(split, splits)}"
        )


class ReadRecords(beam.PTransform):
    """Read the rows of splits as serialized tf.Examples, from TFRecord or Parquet files."""

    def __init__(self, examples: Artifact, splits: Sequence[str], node: str):
        """Read `splits` of `examples`; `node` names the reader in Beam's metrics."""
        super().__init__()
        self._examples, self._splits, self._node = examples, splits, node

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
        """Return the records."""
        payload = examples_utils.get_payload_format(self._examples)
        is_parquet = payload == example_gen_pb2.PayloadFormat.FORMAT_PARQUET  # pyright: ignore
        parts = []
        for split in self._splits:
            tfxio = tfxio_utils.get_split_tfxio(
                examples=[self._examples],
                split=split,
                telemetry_descriptors=[self._node],
                read_as_raw_records=not is_parquet,
                raw_record_column_name=None if is_parquet else _RECORD,
            )
            batches = pipeline | f"Batches[{split}]" >> tfxio.BeamSource()
            to_records = _encode if is_parquet else _records
            parts.append(batches | f"Records[{split}]" >> beam.FlatMap(to_records))
        records: Any = parts | beam.Flatten()
        return records


def _records(batch: pa.RecordBatch) -> list[bytes]:
    return batch.column(0).flatten().to_pylist()


def _encode(batch: pa.RecordBatch) -> Iterator[bytes]:
    kinds: dict[str, Kind | None] = {field.name: kind_of(field.type) for field in batch.schema}
    columns = [as_lists(batch[name], kind) for name, kind in kinds.items() if kind is not None]
    for example in ExampleEncoder(kinds)(columns, batch.num_rows):
        for feature in example.features.feature.values():
            kind = feature.WhichOneof("kind")
            if kind and not getattr(feature, kind).value:  # a missing value, as TFX writes it
                feature.Clear()
        yield example.SerializeToString(deterministic=True)


class SampleRecords(beam.PTransform):
    """Return one list with the records that have the smallest hashes, in that order.

    Equal records have equal hashes and equal attributions, so that it does not matter which of them
    is taken. A worker holds `rows` records, however many there are.
    """

    def __init__(self, rows: int):
        """Sample at most this number of rows."""
        super().__init__()
        self._rows = rows

    def expand(self, records: beam.PCollection[bytes]) -> beam.PCollection[list[bytes]]:
        """Return a collection with one list."""
        sample: Any = (
            records
            | beam.Map(lambda record: (hashlib.blake2b(record, digest_size=8).digest(), record))
            | beam.combiners.Top.Of(self._rows, key=itemgetter(0), reverse=True)
            | "Records" >> beam.Map(lambda found: [record for _, record in found])
        )
        return sample


def split_into_groups(
    records: Sequence[bytes], slices: Sequence[str], what: str
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of each group of rows, and its rows, after checking the sample.

    Args:
        records: The sample.
        slices: Columns that at least one row must have.
        what: Split and place of the examples, for messages.

    Raises:
        ValueError: There is no row, or no row has a column of `slices`.
    """
    if not records:
        raise ValueError(
            f"InputGradients: {what} has no row: name another split, or give the examples more "
            "rows."
        )
    missing, known = list(slices), set[str]()
    for record in records:
        if not missing:
            break
        features = tf.train.Example.FromString(record).features.feature
        known.update(features)
        missing = [name for name in missing if name not in known]
    if missing:
        raise ValueError(
            f"InputGradients: slices={list(slices)}: column {missing[0]!r} is in none of the "
            f"{len(records):,} rows of {what}; {nearest(missing[0], sorted(known))}"
        )
    for start in range(0, len(records), _GROUP):
        yield start // _GROUP, list(records[start : start + _GROUP])
