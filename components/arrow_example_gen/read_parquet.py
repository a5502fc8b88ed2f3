"""Parquet files on Beam, in parallel by row group."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf
from absl import logging

from components.arrow_example_gen import parquet
from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.examples import ExampleEncoder


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tuple[int, tf.train.Example])
class ReadParquet(beam.PTransform):
    """Parquet files as tf.Examples, each with its number (see `parquet.first_number`)."""

    def __init__(
        self, files: Iterable[str], folders: str | Sequence[str], shorter_lists: Iterable[str]
    ):
        """Read the files.

        Args:
            files: their paths.
            folders: where they were found: `key=value` folders below are columns.
            shorter_lists: names or globs of columns of ints whose lists may lose missing values.
        """
        super().__init__()
        self._files, self._folders, self._shorter = list(files), folders, list(shorter_lists)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the footers now, and each row group on a worker."""
        table = parquet.open_table(self._files, self._folders)
        if table.left_out:
            logging.warning(
                "Columns that a tf.Example cannot hold are left out: %s",
                ", ".join(f"{name} ({kind})" for name, kind in table.left_out.items()),
            )
        return (
            pipeline
            | "RowGroups" >> beam.Create(table.groups, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadRowGroup(dict(table.columns), self._whole(table)))
        )

    def _whole(self, table: parquet.ParquetTable) -> frozenset[str]:
        """Return the columns of lists that must not lose a value."""
        return frozenset(
            name
            for name in table.lists
            if name not in self._shorter
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._shorter)
        )


class _ReadRowGroup(beam.DoFn):
    def __init__(self, columns: Mapping[str, Kind | None], whole: frozenset[str]):
        self._columns, self._whole = columns, whole
        self._encode: Any = None

    def setup(self) -> None:
        self._encode = ExampleEncoder(self._columns)

    def process(self, group: parquet.RowGroup) -> Iterator[tuple[int, tf.train.Example]]:
        group = parquet.RowGroup(*group)
        kinds: dict[str, Kind] = {
            name: kind for name, kind in self._columns.items() if kind is not None
        }
        first, start = parquet.first_number(group), 0
        for batch in parquet.batches(group, list(kinds)):
            rows = range(start, start + batch.num_rows)
            lists = parquet.row_lists(batch, kinds, group, rows=rows, whole=self._whole)
            yield from enumerate(self._encode(lists, batch.num_rows), first + start)
            start = rows.stop
