"""CSV files on Beam: one pass for the columns' types, one for the rows, in parallel by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from absl import logging
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen import csv_types
from components.arrow_example_gen.columns import Kind, Rows, as_batch, as_lists
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_table import CsvTable, open_table
from components.arrow_example_gen.csv_types import CellCounts, Counts, CsvTypes


class CsvSource:
    """CSV files of one table; reads their first lines at once, and the rest on workers."""

    def __init__(self, files: Iterable[str], options: CsvOptions):
        self._table = open_table(list(files), options)
        if self._table.dropped:
            logging.warning("%s", self._table.dropped)

    def types(self) -> beam.PTransform:
        """Return the pass that finds the types: Pipeline -> one `CsvTypes`."""
        return _Types(self._table)

    def rows(self, types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`; `types` is the result of the other."""
        return _Rows(self._table, types)

    @staticmethod
    def kinds(types: CsvTypes) -> Mapping[str, Kind | None]:
        """Return the kind of each column."""
        return types.kinds


class _Types(beam.PTransform):
    def __init__(self, table: CsvTable):
        super().__init__()
        self._table = table

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Files" >> beam.Create(self._table.files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(_Count(self._table))
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Types" >> beam.Map(self._table.types)
        )


class _Rows(beam.PTransform):
    def __init__(self, table: CsvTable, types: Any):
        super().__init__()
        self._table, self._types = table, types

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Files" >> beam.Create(self._table.files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_Read(self._table), AsSingleton(self._types))
        )


def _together(counts: Iterable[Counts]) -> Counts:
    found = [each for each in counts if each]  # Beam begins with none
    return csv_types.together(found) if found else {}


class _Count(beam.DoFn):
    def __init__(self, table: CsvTable):
        self._table = table

    def process(self, file: str) -> Iterator[Counts]:
        yield csv_types.together(
            [
                dict.fromkeys(self._table.columns, CellCounts()),
                *map(self._table.count, self._table.blocks(file)),
            ]
        )


class _Read(beam.DoFn):
    def __init__(self, table: CsvTable):
        self._table = table

    def process(self, file: str, types: CsvTypes) -> Iterator[Rows]:
        start = 0
        for block in self._table.blocks(file):
            places = np.arange(start, start + block.num_rows)
            yield places, as_batch(example_lists(block, types), types.kinds, block.num_rows)
            start += block.num_rows


def example_lists(block: pa.RecordBatch, types: CsvTypes) -> list[pa.ListArray]:
    """Return the columns of a block that have values, in the order of `types.kinds`."""
    return [
        as_lists(types.converted(name, block[block.schema.get_field_index(name)]), kind)
        for name, kind in types.kinds.items()
        if kind is not None
    ]
