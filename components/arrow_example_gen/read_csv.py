"""CSV files on Beam: one pass for the columns' types, one for the rows, in parallel by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from absl import logging
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen import csv_types
from components.arrow_example_gen.columns import Kind, as_lists
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_table import CsvTable, open_table
from components.arrow_example_gen.csv_types import CellCounts, Counts, CsvTypes
from components.arrow_example_gen.examples import ExampleEncoder


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tuple[int, tf.train.Example])
class ReadCsv(beam.PTransform):
    """CSV files as tf.Examples, each with its number in the file."""

    def __init__(self, files: Iterable[str], options: CsvOptions):
        super().__init__()
        self._files, self._options = list(files), options

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the first lines now, and the rest on workers."""
        table = open_table(self._files, self._options)
        if table.dropped:
            logging.warning("%s", table.dropped)
        files = (
            pipeline
            | "Files" >> beam.Create(table.files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
        )
        types = (
            files
            | "Count" >> beam.ParDo(_Count(table))
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Types" >> beam.Map(table.types)
        )
        return files | "Read" >> beam.ParDo(_Read(table), AsSingleton(types))


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

    def process(self, file: str, types: CsvTypes) -> Iterator[tuple[int, tf.train.Example]]:
        kinds: dict[str, Kind | None] = {name: types.kinds[name] for name in self._table.columns}
        encode = ExampleEncoder(kinds)
        start = 0
        for block in self._table.blocks(file):
            yield from enumerate(encode(example_lists(block, types), block.num_rows), start)
            start += block.num_rows


def example_lists(block: pa.RecordBatch, types: CsvTypes) -> list[pa.ListArray]:
    """Return the columns of a block that have values, as `as_lists` has them."""
    columns = zip(block.schema.names, block.columns, strict=True)
    kinds = types.kinds
    return [
        as_lists(types.converted(name, cells), kind)
        for name, cells in columns
        if (kind := kinds[name]) is not None
    ]
