"""TFX's CSV executor over compressed files.

TFX opens a file for its rows by `beam.io.filesystems`, which decompresses by the name, and then
iterates over it, which Beam's `CompressedFile` does not offer; and the header by
`tfx.dsl.io.fileio`, which does not decompress.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.components.example_gen.csv_example_gen import executor as csv_executor
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs
from tfx_bsl.coders import csv_decoder


class Executor(BaseExampleGenExecutor):
    """TFX's ExampleGen executor over CSV files of any compression that Beam knows."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """What reads the files of one input split."""
        return ReadCsv


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
class ReadCsv(beam.PTransform):
    """The CSV files that a pattern names, as tf.Examples: the steps of TFX's `_CsvToExample`."""

    def __init__(self, exec_properties: Mapping[str, Any], split_pattern: str):
        """Args:
        exec_properties: of the node; `input_base` is the folder of the patterns.
        split_pattern: glob below it.
        """
        super().__init__()
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        self._pattern = os.path.join(base, split_pattern)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Reads the headers now, and the rows on the workers."""
        files = sorted(map(str, fileio.glob(self._pattern)))
        if not files:
            raise ValueError(f"{self._pattern} matches no file")
        names = _header(files[0])
        for file in files[1:]:
            if _header(file) != names:
                raise ValueError(f"{file}: its header differs from that of {files[0]}")
        rows = (
            pipeline
            | "Files" >> beam.Create(files)
            | "Lines" >> beam.ParDo(_ReadRecords())
            | "Parse" >> beam.ParDo(csv_decoder.ParseCSVLine(delimiter=","))
            | "Cells" >> beam.Keys()
        )
        infer = csv_decoder.ColumnTypeInferrer(names, skip_blank_lines=True)
        types = AsSingleton(rows | "InferTypes" >> beam.CombineGlobally(infer))
        return rows | "ToExample" >> beam.ParDo(csv_executor._ParsedCsvToTfExample(), types)


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class _ReadRecords(beam.DoFn):
    """The records of a file, each of one line or of several."""

    def process(self, file: str) -> Iterator[str]:
        with FileSystems.open(file) as stream:
            stream.readline()
            record = csv_executor._CsvLineBuffer()
            while line := stream.readline():
                record.write(line.decode("utf-8"))
                if record.is_complete_line():
                    yield record.read()
            if not record.is_empty():
                raise ValueError(f"{file}: the quotes of its last record do not end")


def _header(file: str) -> list[str]:
    with FileSystems.open(file) as stream:
        return stream.readline().decode("utf-8").strip().split(",")
