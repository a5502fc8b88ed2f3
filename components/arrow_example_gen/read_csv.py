"""CSV files on Beam: one pass for the columns' types, one for the rows, in parallel by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam
from absl import logging
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen.columns import Agreed, Kind
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.csv_table import CsvTable, open_table


class CsvSource:
    """CSV files of one table; reads their first lines at once, and the rest on workers."""

    def __init__(self, files: Iterable[str], options: CsvOptions):
        self._table = open_table(list(files), options)
        if self._table.dropped:
            logging.warning("%s", self._table.dropped)

    def types(self) -> beam.PTransform:
        """Return the pass that finds the types and the parts: Pipeline -> one `Agreed`."""
        return _Types(self._table)

    def rows(self, types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`; `types` is the result of the other."""
        return _Rows(self._table, types)

    @staticmethod
    def kinds(types: Agreed) -> Mapping[str, Kind | None]:
        """Return the kind of each column."""
        return types[0]


class _Types(beam.PTransform):
    def __init__(self, table: CsvTable):
        super().__init__()
        self._table = table

    def expand(self, pipeline: Any) -> Any:
        table = self._table
        return (
            pipeline
            | "Files" >> beam.Create(table.files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Parts" >> beam.FlatMap(table.parts)
            | "SpreadParts" >> beam.Reshuffle()
            | "Count" >> beam.Map(lambda part: [(part, table.examine(part))])
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Types" >> beam.Map(table.agree)
        )


class _Rows(beam.PTransform):
    def __init__(self, table: CsvTable, types: Any):
        super().__init__()
        self._table, self._types = table, types

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Once" >> beam.Create([None], reshuffle=False)
            | "Parts" >> beam.FlatMap(lambda _, agreed: agreed[1], AsSingleton(self._types))
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(self._table.read, AsSingleton(self._types))
        )


def _together(several: Iterable[list[Any]]) -> list[Any]:
    return [each for one in several for each in one]
