"""Reads tables by Arrow on Beam, and writes tf.Examples in TFX's splits.

TFX's own executors split a CSV's first line at every comma and know no other delimiter, encoding or
word for missing values; of Parquet they drop zeros, False and empty texts
(`tfx.components.example_gen.utils.dict_to_example` tests a value's truth), decode binary values as
UTF-8, and take files of different columns for one table. Its reader of TFRecords names neither file
nor record where one is damaged, and takes features of two types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from absl import logging
from google.protobuf import json_format, struct_pb2
from tfx.components.example_gen import utils
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.types.artifact import Artifact
from tfx.utils import proto_utils

from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.driver import resolve_input
from components.arrow_example_gen.file_patterns import escape, literal_folder
from components.arrow_example_gen.read_csv import ReadCsv
from components.arrow_example_gen.read_parquet import ReadParquet
from components.arrow_example_gen.read_tfrecord import ReadTfrecord
from components.arrow_example_gen.spans import SEPARATOR
from components.arrow_example_gen.splitting import SplitRows, Splitting
from components.arrow_example_gen.with_values import WithValues

_PROTO: Any = example_gen_pb2

CSV = "csv"
TFRECORD = "tfrecord"
SHORTER_LISTS = "shorter_lists"
REQUIRED = "required"
SPLITTING = "splitting"
"""Keys of the node's `custom_config`: what `ArrowExampleGen` is given."""


class Executor(BaseExampleGenExecutor):
    """TFX's ExampleGen executor (splits, spans, shuffling), over tables that Arrow reads."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Resolve spans where no driver did, as on Kubeflow, and write the examples."""
        if utils.SPAN_PROPERTY_NAME not in exec_properties:
            examples = output_dict[standard_component_specs.EXAMPLES_KEY]
            exec_properties = resolve_input(
                exec_properties, artifact_utils.get_single_instance(examples)
            )
            logging.info(
                "ArrowExampleGen: span %s, version %s: %s",
                exec_properties[utils.SPAN_PROPERTY_NAME],
                exec_properties[utils.VERSION_PROPERTY_NAME],
                exec_properties[standard_component_specs.INPUT_CONFIG_KEY],
            )
        super().Do(input_dict, output_dict, exec_properties)

    def GetInputSourceToExamplePTransform(self) -> type[beam.PTransform]:
        """Return the transform that reads the files of one input split."""
        return _Rows

    def GenerateExamplesByBeam(
        self, pipeline: beam.Pipeline, exec_properties: dict[str, Any]
    ) -> dict[str, beam.PCollection]:
        """Return the rows of each split: split by `splitting`, else as TFX does it."""
        splitting = _options(exec_properties).get(SPLITTING)
        if splitting is None:
            return super().GenerateExamplesByBeam(pipeline, exec_properties)
        files, into = (
            proto_utils.json_to_proto(exec_properties[key], message)
            for key, message in (
                (standard_component_specs.INPUT_CONFIG_KEY, _PROTO.Input()),
                (standard_component_specs.OUTPUT_CONFIG_KEY, _PROTO.Output()),
            )
        )
        splits = list(into.split_config.splits)
        if len(files.splits) != 1 or not splits:
            raise ValueError(
                f"ArrowExampleGen: splitting={splitting} goes with one input split and with an "
                f"output_config that names those it is split into; here are {len(files.splits)} "
                f"and {len(splits)}."
            )
        rows: Any = pipeline | "InputToRecord" >> _read(exec_properties, files.splits[0].pattern)
        shares = [split.hash_buckets for split in splits]
        parts = rows | "SplitData" >> SplitRows(Splitting.model_validate(splitting), shares)
        return dict(zip([split.name for split in splits], parts, strict=True))


class _Rows(beam.PTransform):
    """What TFX splits: the rows without their numbers."""

    def __init__(self, exec_properties: Mapping[str, Any], split_pattern: str):
        super().__init__()
        self._read = _read(exec_properties, split_pattern)

    def expand(self, pipeline: beam.Pipeline) -> Any:
        rows: Any = pipeline | self._read
        return rows | "Rows" >> beam.Values().with_output_types(tf.train.Example)


def _read(exec_properties: Mapping[str, Any], split_pattern: str) -> beam.PTransform:
    """Return the transform that reads the matching files of the node's folder as numbered rows.

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
        rows = ReadCsv(files, CsvOptions.model_validate(options[CSV]))
    elif options.get(TFRECORD):
        rows = ReadTfrecord(files)
    else:
        shorter = options.get(SHORTER_LISTS, [])
        rows = ReadParquet(files, [literal_folder(folder, each) for each in patterns], shorter)
    required = options.get(REQUIRED, [])
    return WithValues(rows, required) if required else rows


def _options(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    config = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not config:
        return {}
    options = struct_pb2.Struct()
    proto_utils.json_to_proto(config, _PROTO.CustomConfig()).custom_config.Unpack(options)
    return json_format.MessageToDict(options)
