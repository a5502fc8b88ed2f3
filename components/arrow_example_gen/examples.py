"""Arrow record batches -> tf.Examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import tensorflow as tf
from tfx_bsl.coders import example_coder

from components.arrow_example_gen.columns import Kind, as_lists


class ExampleEncoder:
    """Writes the columns of record batches as tf.Examples, row by row."""

    def __init__(self, columns: Mapping[str, Kind | None]):
        """Args:
        columns: name -> kind of what is written; a column without one has a feature without
            values, as TFX's CsvExampleGen writes it.
        """
        self._kinds: dict[str, Kind] = {
            name: kind for name, kind in columns.items() if kind is not None
        }
        self._empty = [name for name, kind in columns.items() if kind is None]
        self._encoder = example_coder.RecordBatchToExamplesEncoder()

    def __call__(self, batch: pa.RecordBatch) -> Iterator[tf.train.Example]:
        """The rows of a batch.

        Args:
            batch: has every column with a kind; others are not looked at.

        Raises:
            ValueError: a column's values do not fit its kind.
        """
        places = {name: i for i, name in enumerate(batch.schema.names)}
        arrays = []
        for name, kind in self._kinds.items():
            try:
                arrays.append(as_lists(batch[places[name]], kind))
            except pa.ArrowInvalid as error:
                raise ValueError(f"column {name!r} cannot be written as {kind}: {error}") from None
        if not arrays:
            written = [b""] * batch.num_rows
        else:
            lists = pa.RecordBatch.from_arrays(arrays, list(self._kinds))
            written = self._encoder.encode(lists)
        for serialized in written:
            example = tf.train.Example.FromString(serialized)
            for name in self._empty:
                example.features.feature[name].SetInParent()
            yield example
