"""Reads tables by Arrow on Beam, and writes them as Parquet in TFX's splits.

TFX's own executors split a CSV's first line at every comma and know no other delimiter, encoding or
word for missing values; of Parquet they drop zeros, False and empty texts
(`tfx.components.example_gen.utils.dict_to_example` tests a value's truth), decode binary values as
UTF-8, and take files of different columns for one table. Its reader of TFRecords names neither file
nor record where one is damaged, and takes features of two types.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from absl import logging
from apache_beam.pvalue import AsSingleton
from google.protobuf import json_format, struct_pb2
from tfx.components.example_gen import utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.types.artifact import Artifact
from tfx.utils import proto_utils

from components.arrow_example_gen import csv_table, parquet
from components.arrow_example_gen.columns import Kind, Rows, Table, list_type
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.driver import resolve_input
from components.arrow_example_gen.spans import SEPARATOR, escape, literal_folder
from components.arrow_example_gen.splitting import SplitRows, Splitting
from components.arrow_example_gen.tfrecord import TfrecordTable
from components.arrow_example_gen.write_parquet import WriteParquet

_PROTO: Any = example_gen_pb2

FILES = "data_parquet"
"""What the names of the files begin with, as TFX's WriteSplit names them."""

CSV = "csv"
TFRECORD = "tfrecord"
SHORTER_LISTS = "shorter_lists"
REQUIRED = "required"
SPLITTING = "splitting"
"""Keys of the node's `custom_config`: what `ArrowExampleGen` is given."""


class Executor(BaseBeamExecutor):
    """Does what TFX's ExampleGen executors do (splits, spans), over tables that Arrow reads."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Resolve spans where no driver did, as on Kubeflow, and write the examples."""
        outputs = output_dict[standard_component_specs.EXAMPLES_KEY]
        examples = artifact_utils.get_single_instance(outputs)
        if utils.SPAN_PROPERTY_NAME not in exec_properties:
            exec_properties = resolve_input(exec_properties, examples)
            logging.info(
                "ArrowExampleGen: span %s, version %s: %s",
                exec_properties[utils.SPAN_PROPERTY_NAME],
                exec_properties[utils.VERSION_PROPERTY_NAME],
                exec_properties[standard_component_specs.INPUT_CONFIG_KEY],
            )
        files, into = configured(exec_properties)
        names = utils.generate_output_split_names(files, into)
        examples.split_names = artifact_utils.encode_split_names(names)
        examples_utils.set_payload_format(examples, _PROTO.FORMAT_PARQUET)
        examples_utils.set_file_format(examples, "FILE_FORMAT_PARQUET")
        with self._make_beam_pipeline() as pipeline:
            for name, rows in _rows_by_split(pipeline, exec_properties).items():
                folder = artifact_utils.get_split_uri(outputs, name)
                _ = rows | f"WriteSplit[{name}]" >> WriteParquet(
                    os.path.join(folder, FILES), shuffles=True
                )


def configured(exec_properties: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the node's input_config and output_config."""
    files, into = _PROTO.Input(), _PROTO.Output()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], files)
    proto_utils.json_to_proto(exec_properties[standard_component_specs.OUTPUT_CONFIG_KEY], into)
    return files, into


def _rows_by_split(
    pipeline: beam.Pipeline, exec_properties: Mapping[str, Any]
) -> dict[str, beam.PCollection]:
    """Return the record batches of each split.

    Raises:
        ValueError: rows are to be split, and there is not one input split.
    """
    files, into = configured(exec_properties)
    splits, names = list(into.split_config.splits), [split.name for split in files.splits]
    splitting = _splitting(exec_properties, into)
    required = _options(exec_properties).get(REQUIRED, [])
    sources = [open_source(exec_properties, split.pattern) for split in files.splits]
    types = [
        pipeline | f"Types[{name}]" >> source.types()
        for name, source in zip(names, sources, strict=True)
    ]
    reads = [source.rows(found) for source, found in zip(sources, types, strict=True)]
    if required:
        reads = [_WithValues(read, required) for read in reads]
    if len(names) == 1 and splits:
        shares = [split.hash_buckets for split in splits]
        parts = pipeline | "SplitData" >> SplitRows(reads[0], splitting, shares)
    elif not splits and splitting.by == "content":
        kinds: list[Any] = [
            found | f"Kinds[{name}]" >> beam.Map(lambda agreed: agreed[0])
            for name, found in zip(names, types, strict=True)
        ]
        known: Any = kinds | beam.Flatten() | "AllKinds" >> beam.CombineGlobally(_all_kinds)
        parts = [
            pipeline
            | f"InputToRecord[{name}]" >> read
            | f"AllColumns[{name}]" >> beam.Map(_all_columns, AsSingleton(own), AsSingleton(known))
            for name, read, own in zip(names, reads, kinds, strict=True)
        ]
    else:
        raise ValueError(
            f"ArrowExampleGen: splitting={splitting} goes with one input split and with an "
            f"output_config that names those it is split into; here are {len(files.splits)} "
            f"and {len(splits)}."
        )
    return dict(zip(utils.generate_output_split_names(files, into), parts, strict=True))


_Kinds = Mapping[str, Kind | None]


def _all_kinds(found: Iterable[_Kinds]) -> _Kinds:
    """Return the columns of all input splits; of several kinds, which later nodes refuse, one."""
    found = list(found)
    known: dict[str, Kind | None] = {}
    for name, kind in sorted(pair for each in found for pair in each.items() if pair[1]):
        known.setdefault(name, kind)
    return {name: known.get(name) for each in found for name in each}


def _all_columns(rows: Rows, own: _Kinds, known: _Kinds) -> pa.RecordBatch:
    """Add the columns in which another input split alone has a value, without values.

    Parquet has the type of each column, so that all splits need the same ones.
    """
    batch = rows[1]
    columns = {
        name: batch[batch.schema.get_field_index(name)]
        if own.get(name)
        else pa.nulls(batch.num_rows, list_type(kind))
        for name, kind in sorted(known.items())
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _splitting(exec_properties: Mapping[str, Any], into: Any) -> Splitting:
    options = _options(exec_properties).get(SPLITTING)
    if options is not None:
        return Splitting.model_validate(options)
    column = into.split_config.partition_feature_name
    return Splitting(by="group", column=column) if column else Splitting(by="content")


class TableSource:
    """A table on Beam: a pass for the columns' types, and one for the rows, in parallel by part."""

    def __init__(self, table: Table):
        self._table = table
        if table.dropped:
            logging.warning("%s", table.dropped)

    def types(self) -> beam.PTransform:
        """Return the pass that finds the types and the parts: Pipeline -> one `Agreed`."""
        return _Types(self._table)

    def rows(self, types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`; `types` is the result of the other."""
        return _TableRows(self._table, types)


class _Types(beam.PTransform):
    def __init__(self, table: Table):
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
            | "Count" >> beam.Map(lambda part: (part, table.examine(part)))
            | "Together" >> beam.combiners.ToList()
            | "Types" >> beam.Map(table.agree)
        )


class _TableRows(beam.PTransform):
    def __init__(self, table: Table, types: Any):
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


def open_source(exec_properties: Mapping[str, Any], split_pattern: str) -> TableSource:
    """Open the matching files of the node's folder.

    Args:
        exec_properties: of the node; `input_base` is the folder of the patterns.
        split_pattern: glob below it; of a window of spans, one for each span.
    """
    folder = exec_properties[standard_component_specs.INPUT_BASE_KEY]
    patterns = split_pattern.split(SEPARATOR)
    files: list[str] = []
    for pattern in patterns:
        found = sorted(map(str, fileio.glob(f"{escape(folder)}/{pattern}")))
        if not found:
            raise ValueError(f"{folder}/{pattern} matches no file")
        files += found
    options = _options(exec_properties)
    if CSV in options:
        return TableSource(csv_table.open_table(files, CsvOptions.model_validate(options[CSV])))
    if options.get(TFRECORD):
        return TableSource(TfrecordTable(tuple(files)))
    folders = [literal_folder(folder, each) for each in patterns]
    return TableSource(parquet.open_table(files, folders, options.get(SHORTER_LISTS, [])))


def _options(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    config = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not config:
        return {}
    options = struct_pb2.Struct()
    proto_utils.json_to_proto(config, _PROTO.CustomConfig()).custom_config.Unpack(options)
    return json_format.MessageToDict(options)


class _WithValues(beam.PTransform):
    """What another transform reads, without the rows that lack a value of a column."""

    def __init__(self, rows: beam.PTransform, required: Sequence[str]):
        """Read rows and drop some.

        Args:
            rows: reads `Rows`.
            required: columns; NaN, infinities and empty texts are no values.
        """
        super().__init__()
        self._rows, self._required = rows, list(required)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the rows and drop those without a required value."""
        rows: Any = pipeline | self._rows
        return rows | "WithValues" >> beam.Map(_with_values, self._required)


def _with_values(rows: Rows, required: Sequence[str]) -> Rows:
    places, batch = rows
    kept = have_values(batch, required)
    return places[kept], batch.filter(pa.array(kept))


def have_values(batch: pa.RecordBatch, required: Sequence[str]) -> np.ndarray:
    """Return whether each row has a value for each of the columns, bool `[rows]`."""
    found = np.ones(batch.num_rows, bool)
    for name in required:
        place = batch.schema.get_field_index(name)
        found &= _has_value(batch[place]) if place >= 0 else False
    return found


def _has_value(column: pa.LargeListArray) -> np.ndarray:
    values = column.values
    if types.is_floating(values.type):
        usable = np.isfinite(values.to_numpy())
    elif types.is_integer(values.type):
        usable = np.ones(len(values), bool)
    else:
        usable = pc.greater(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    counted = np.concatenate([[0], np.cumsum(usable)])
    offsets = column.offsets.to_numpy()
    return counted[offsets[1:]] > counted[offsets[:-1]]
