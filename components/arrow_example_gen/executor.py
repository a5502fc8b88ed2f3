"""Reads tables by Arrow on Beam, and writes tf.Examples in TFX's splits.

TFX's own Parquet executor drops zeros, False and empty texts
(`tfx.components.example_gen.utils.dict_to_example` tests a value's truth), decodes binary values as
UTF-8, and takes files of different columns for one table.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from absl import logging
from google.protobuf import struct_pb2
from tfx import v1 as tfx
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from components.arrow_example_gen import parquet
from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.examples import ExampleEncoder

SHORTER_LISTS = "shorter_lists"
"""Key of the node's `custom_config`: what `ArrowExampleGen(shorter_lists=...)` names."""


class Executor(BaseExampleGenExecutor):
    """TFX's ExampleGen executor (splits, spans, shuffling), over Parquet files."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """What reads the files of one input split."""
        return ReadParquet


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
class ReadParquet(beam.PTransform):
    """The Parquet files that a pattern names, as tf.Examples."""

    def __init__(self, exec_properties: Mapping[str, Any], split_pattern: str):
        """Args:
        exec_properties: of the node; `input_base` is the folder of the patterns.
        split_pattern: glob below it.
        """
        super().__init__()
        self._folder = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        self._pattern = split_pattern
        self._shorter = _shorter_lists(exec_properties)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Reads the footers now, and each row group on a worker."""
        files = sorted(map(str, fileio.glob(f"{self._folder}/{self._pattern}")))
        if not files:
            raise ValueError(f"{self._folder}/{self._pattern} matches no file")
        table = parquet.open_table(files, base_folder(self._folder, self._pattern))
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
        """The columns of lists that must not lose a value."""
        return frozenset(
            name
            for name in table.lists
            if name not in self._shorter
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._shorter)
        )


def _shorter_lists(exec_properties: Mapping[str, Any]) -> list[str]:
    config = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not config:
        return []
    options = struct_pb2.Struct()
    packed = proto_utils.json_to_proto(config, tfx.proto.CustomConfig()).custom_config
    packed.Unpack(options)
    return [value.string_value for value in options.fields[SHORTER_LISTS].list_value.values]


def base_folder(folder: str, pattern: str) -> str:
    """The folder without wildcards that a pattern's files lie below."""
    parts = pattern.split("/")[:-1]
    fixed = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    return "/".join([folder, *parts[:fixed]])


class _ReadRowGroup(beam.DoFn):
    def __init__(self, columns: Mapping[str, Kind | None], whole: frozenset[str]):
        self._columns, self._whole = columns, whole
        self._encode: Any = None

    def setup(self) -> None:
        self._encode = ExampleEncoder(self._columns)

    def process(self, group: parquet.RowGroup) -> Iterator[tf.train.Example]:
        group = parquet.RowGroup(*group)
        kinds: dict[str, Kind] = {
            name: kind for name, kind in self._columns.items() if kind is not None
        }
        start = 0
        for batch in parquet.batches(group, list(kinds)):
            rows = range(start, start + batch.num_rows)
            yield from self._encode(
                parquet.row_lists(batch, kinds, group, rows=rows, whole=self._whole),
                batch.num_rows,
            )
            start = rows.stop
