"""Parquet files on Beam, in parallel by row group."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from absl import logging

from components.arrow_example_gen import parquet
from components.arrow_example_gen.columns import Kind, Rows, as_batch


class ParquetSource:
    """Parquet files of one table; reads their footers at once, and each row group on a worker."""

    def __init__(
        self, files: Iterable[str], folders: str | Sequence[str], shorter_lists: Iterable[str]
    ):
        """Read the footers.

        Args:
            files: their paths.
            folders: where they were found: `key=value` folders below are columns.
            shorter_lists: names or globs of columns of ints whose lists may lose missing values.
        """
        self._table, self._shorter = parquet.open_table(list(files), folders), list(shorter_lists)
        if self._table.left_out:
            logging.warning(
                "Columns of types that examples cannot hold are left out: %s",
                ", ".join(f"{name} ({kind})" for name, kind in self._table.left_out.items()),
            )

    def types(self) -> beam.PTransform:
        """Return what is known already: Pipeline -> one mapping, column -> kind."""
        return beam.Create([dict(self._table.columns)], reshuffle=False)

    def rows(self, _types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`, with places of `first_number`."""
        table = self._table
        return _Rows(table.groups, dict(table.columns), self._whole(table))

    @staticmethod
    def kinds(types: Mapping[str, Kind | None]) -> Mapping[str, Kind | None]:
        """Return the kind of each column."""
        return types

    def _whole(self, table: parquet.ParquetTable) -> frozenset[str]:
        """Return the columns of lists that must not lose a value."""
        return frozenset(
            name
            for name in table.lists
            if name not in self._shorter
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._shorter)
        )


class _Rows(beam.PTransform):
    def __init__(
        self,
        groups: Sequence[parquet.RowGroup],
        columns: Mapping[str, Kind | None],
        whole: frozenset[str],
    ):
        super().__init__()
        self._groups, self._read = groups, _ReadRowGroup(columns, whole)

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "RowGroups" >> beam.Create(self._groups, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(self._read)
        )


class _ReadRowGroup(beam.DoFn):
    def __init__(self, columns: Mapping[str, Kind | None], whole: frozenset[str]):
        self._columns, self._whole = columns, whole

    def process(self, group: parquet.RowGroup) -> Iterator[Rows]:
        group = parquet.RowGroup(*group)
        kinds: dict[str, Kind] = {
            name: kind for name, kind in self._columns.items() if kind is not None
        }
        first, start = parquet.first_number(group), 0
        size = parquet.write_batch_rows(group)
        for batch in parquet.batches(group, list(kinds), batch_rows=size):
            rows = range(start, start + batch.num_rows)
            lists = parquet.row_lists(batch, kinds, group, rows=rows, whole=self._whole)
            yield first + np.asarray(rows), as_batch(lists, self._columns, batch.num_rows)
            start = rows.stop
