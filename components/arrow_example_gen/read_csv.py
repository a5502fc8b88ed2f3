"""CSV files on Beam: one pass for the columns' types, one for the rows, in parallel by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from absl import logging
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen import csv_types
from components.arrow_example_gen.columns import Kind, Rows, as_batch, as_lists
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_parts import Part
from components.arrow_example_gen.csv_table import CsvTable, open_table
from components.arrow_example_gen.csv_text import ByteRange
from components.arrow_example_gen.csv_types import CellCounts, Counts, CsvTypes


class Numbered(NamedTuple):
    """A part of a file, and the place of its first row in the file."""

    part: Part
    start: int


class Found(NamedTuple):
    """What the pass for the types finds."""

    types: CsvTypes
    parts: list[Numbered]


class CsvSource:
    """CSV files of one table; reads their first lines at once, and the rest on workers."""

    def __init__(self, files: Iterable[str], options: CsvOptions):
        self._table = open_table(list(files), options)
        if self._table.dropped:
            logging.warning("%s", self._table.dropped)

    def types(self) -> beam.PTransform:
        """Return the pass that finds the types and the parts: Pipeline -> one `Found`."""
        return _Types(self._table)

    def rows(self, types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`; `types` is the result of the other."""
        return _Rows(self._table, types)

    @staticmethod
    def kinds(types: Found) -> Mapping[str, Kind | None]:
        """Return the kind of each column."""
        return types[0].kinds


class _Types(beam.PTransform):
    def __init__(self, table: CsvTable):
        super().__init__()
        self._table = table

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Files" >> beam.Create(self._table.files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Parts" >> beam.FlatMap(self._table.parts)
            | "SpreadParts" >> beam.Reshuffle()
            | "Count" >> beam.Map(_counted, self._table)
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Types" >> beam.Map(_found, self._table)
        )


class _Rows(beam.PTransform):
    def __init__(self, table: CsvTable, types: Any):
        super().__init__()
        self._table, self._types = table, types

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Once" >> beam.Create([None], reshuffle=False)
            | "Parts" >> beam.FlatMap(_numbered_parts, AsSingleton(self._types))
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read, self._table, AsSingleton(self._types))
        )


class _Counted(NamedTuple):
    part: Part
    rows: int
    counts: Counts


def _counted(part: Part, table: CsvTable) -> list[_Counted]:
    file, place = part[0], ByteRange(*part[1])
    rows, counts = 0, dict.fromkeys(table.columns, CellCounts())
    for block in table.blocks(file, part=place):
        rows += block.num_rows
        counts = csv_types.together([counts, table.count(block)])
    return [_Counted(Part(file, place), rows, counts)]


def _together(counted: Iterable[list[_Counted]]) -> list[_Counted]:
    return [each for several in counted for each in several]


def _found(counted: list[_Counted], table: CsvTable) -> Found:
    """Return the types, and the parts in the order of the files, whoever counted them first."""
    order = {file: number for number, file in enumerate(table.files)}
    in_order = sorted(
        (_Counted(*each) for each in counted),
        key=lambda each: (order[each.part[0]], each.part[1][0]),
    )
    parts, rows = [], dict.fromkeys(table.files, 0)
    for part, count, _ in in_order:
        parts.append(Numbered(part, rows[part[0]]))
        rows[part[0]] += count
    return Found(table.types(csv_types.together(each.counts for each in in_order)), parts)


def _numbered_parts(_: None, found: Found) -> list[Numbered]:
    return found[1]


def _read(numbered: Numbered, table: CsvTable, found: Found) -> Iterator[Rows]:
    ((file, place), start), types = numbered, found[0]
    for block in table.blocks(file, part=ByteRange(*place)):
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
