"""Record batches with serialized tf.Examples, from any file format that TFXIO reads."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow_model_analysis as tfma
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.api import types

from components.arrow_example_gen.columns import empty_to_null, serialize

# TFXIO yields up to 1,000 rows of TFRecords, where a call of a signature costs more than its rows,
# and whole row groups of Parquet. Wide rows keep TFXIO's number, so memory stays bounded.
LEAST_ROWS, MOST_ROWS = 1_000, 8_192
_BATCH_BYTES = 4 << 20


def prepare_record_batches() -> tfma.extractors.Extractor:
    """Return an extractor that merges or cuts record batches and adds serialized tf.Examples.

    The batches have up to `MOST_ROWS` rows, or fewer if these exceed `BATCH_BYTES`. TFXIO adds the
    serialized rows of TFRecords, but not those of Parquet; TFMA's extractors pass them to the
    signatures of a model. In Parquet each column is a list of values per row; an empty list or
    null is a missing value.
    """
    return tfma.extractors.Extractor(
        stage_name="PrepareRecordBatches", ptransform=beam.ParDo(_PrepareRecordBatches())
    )


class _PrepareRecordBatches(beam.DoFn):
    def start_bundle(self) -> None:
        self._waiting: list[pa.RecordBatch] = []

    def process(self, element: types.Extracts) -> Iterator[types.Extracts]:
        batch = element.get(constants.ARROW_RECORD_BATCH_KEY)
        if batch is None:
            yield element
            return
        fitting = _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
        most = min(max(LEAST_ROWS, fitting), MOST_ROWS)
        for start in range(0, batch.num_rows, most):
            part = batch.slice(start, most)
            if part.num_rows < batch.num_rows:
                # A slice is pickled with all rows, and Beam pickles some elements.
                part = part.take(pa.array(np.arange(part.num_rows)))
            rows = sum(each.num_rows for each in self._waiting)
            # Without a schema TFXIO infers the types of each batch.
            if rows and (rows + part.num_rows > most or part.schema != self._waiting[0].schema):
                yield self._merge()
            self._waiting.append(part)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._waiting:
            yield GlobalWindows.windowed_value(self._merge())

    def _merge(self) -> types.Extracts:
        (batch,) = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting = []
        if constants.ARROW_INPUT_COLUMN not in batch.schema.names:
            columns, names = [empty_to_null(each) for each in batch.columns], batch.schema.names
            encoded = serialize(pa.RecordBatch.from_arrays(columns, names))
            rows = pa.LargeListArray.from_arrays(
                pa.array(np.arange(len(encoded) + 1)), pa.array(encoded, pa.large_binary())
            )
            batch = pa.RecordBatch.from_arrays(
                [*columns, rows], [*names, constants.ARROW_INPUT_COLUMN]
            )
        return {constants.ARROW_RECORD_BATCH_KEY: batch}
