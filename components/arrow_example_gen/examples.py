"""Columns as lists -> tf.Examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import tensorflow as tf
from tfx_bsl.coders import example_coder

from components.arrow_example_gen.columns import Kind


class ExampleEncoder:
    """Writes columns as tf.Examples, row by row."""

    def __init__(self, columns: Mapping[str, Kind | None]):
        """Write columns of these kinds.

        Args:
            columns: name -> kind of what is written; a column without one has a feature without
                values, as TFX's CsvExampleGen writes it.
        """
        self._names = [name for name, kind in columns.items() if kind is not None]
        self._empty = [name for name, kind in columns.items() if kind is None]
        self._encoder = example_coder.RecordBatchToExamplesEncoder()

    def __call__(self, arrays: Sequence[pa.ListArray], rows: int) -> Iterator[tf.train.Example]:
        """Yield the rows.

        Args:
            arrays: the columns with a kind, in their order, as `as_lists` has them.
            rows: their number.
        """
        if not arrays:
            written = [b""] * rows
        else:
            lists = pa.RecordBatch.from_arrays(list(arrays), self._names)
            written = self._encoder.encode(lists)
        for serialized in written:
            example = tf.train.Example.FromString(serialized)
            for name in self._empty:
                example.features.feature[name].SetInParent()
            yield example
