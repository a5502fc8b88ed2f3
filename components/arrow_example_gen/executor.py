"""Reads tables by Arrow on Beam, and writes them as Parquet in TFX's splits.

TFX's own executors split a CSV's first line at every comma and know no other delimiter, encoding or
word for missing values; of Parquet they drop zeros, False and empty texts
(`tfx.components.example_gen.utils.dict_to_example` tests a value's truth), decode binary values as
UTF-8, and take files of different columns for one table. Its reader of TFRecords names neither file
nor record where one is damaged, and takes features of two types.

TFX resolves {SPAN}, {VERSION} and dates in ExampleGen's driver, to one span. The driver here knows
windows of several too (`range_config`). Where the platform runs no driver, as Kubeflow, the
executor calls `_resolve_input` itself, so that what is read and what is recorded is the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
import pyarrow as pa
from absl import logging
from apache_beam.pvalue import AsSingleton, TaggedOutput
from google.protobuf import json_format, struct_pb2
from tfx.components.example_gen import driver as tfx_driver
from tfx.components.example_gen import utils
from tfx.components.example_gen.input_processor import InputProcessor
from tfx.components.util import examples_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.types.artifact import Artifact
from tfx.utils import io_utils, proto_utils

from components.arrow_example_gen import csv_table, parquet
from components.arrow_example_gen.columns import (
    Agreed,
    Kind,
    Part,
    Rows,
    Table,
    are_usable,
    as_batch,
    as_lists,
    list_type,
)
from components.arrow_example_gen.csv_options import CsvOptions
from components.arrow_example_gen.images import (
    SHOWN_SKIPPED,
    SKIPPED,
    Images,
    ImageTable,
    images_of,
    list_images,
)
from components.arrow_example_gen.spans import (
    SEPARATOR,
    Span,
    escape,
    has_placeholders,
    latest_spans,
    literal_folder,
)
from components.arrow_example_gen.splitting import SplitRows, Splitting
from components.arrow_example_gen.tfrecord import TfrecordTable
from components.arrow_example_gen.write_parquet import WriteParquet

_PROTO: Any = example_gen_pb2
_Message: TypeAlias = Any
"""Of TFX's protos, which ship without types."""


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
            exec_properties = _resolve_input(exec_properties, examples)
            logging.info(
                "ArrowExampleGen: span %s, version %s: %s",
                exec_properties[utils.SPAN_PROPERTY_NAME],
                exec_properties[utils.VERSION_PROPERTY_NAME],
                exec_properties[standard_component_specs.INPUT_CONFIG_KEY],
            )
        files, into = _configured(exec_properties)
        names = utils.generate_output_split_names(files, into)
        examples.split_names = artifact_utils.encode_split_names(names)
        examples_utils.set_payload_format(examples, _PROTO.FORMAT_PARQUET)
        examples_utils.set_file_format(examples, "FILE_FORMAT_PARQUET")
        images = _images(exec_properties)
        with self._make_beam_pipeline() as pipeline:
            rows_by_split, skipped = _rows_by_split(pipeline, exec_properties)
            for name, rows in rows_by_split.items():
                folder = artifact_utils.get_split_uri(outputs, name)
                _ = rows | f"WriteSplit[{name}]" >> WriteParquet(
                    os.path.join(folder, "data_parquet"), shuffles=True, encoded=images.names
                )
            if images.on_damage == "skip":
                all_skipped: Any = skipped | "AllSkipped" >> beam.Flatten()
                first = all_skipped | "First" >> beam.combiners.Top.Smallest(SHOWN_SKIPPED)
                number = all_skipped | "Number" >> beam.combiners.Count.Globally()
                file = os.path.join(examples.uri, SKIPPED)
                _ = first | "WriteSkipped" >> beam.Map(_write_skipped, AsSingleton(number), file)


def _write_skipped(first: list[str], number: int, file: str) -> None:
    if number:
        logging.warning("ArrowExampleGen: %d images are left out: %s", number, "; ".join(first))
    with fileio.open(file, "w") as stream:
        stream.write(json.dumps({"number": number, "first": first}))


def _configured(exec_properties: Mapping[str, Any]) -> tuple[_Message, _Message]:
    """Return the node's input_config and output_config."""
    files, into = _PROTO.Input(), _PROTO.Output()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], files)
    proto_utils.json_to_proto(exec_properties[standard_component_specs.OUTPUT_CONFIG_KEY], into)
    return files, into


def _rows_by_split(
    pipeline: beam.Pipeline, exec_properties: Mapping[str, Any]
) -> tuple[dict[str, beam.PCollection], list[beam.PCollection]]:
    """Return the record batches of each split, and a line for each row that is left out."""
    files, into = _configured(exec_properties)
    splits, names = list(into.split_config.splits), [split.name for split in files.splits]
    splitting = _splitting(exec_properties, into)
    required = _options(exec_properties).get("required", [])
    tables = [open_input(exec_properties, split.pattern) for split in files.splits]
    types = [
        pipeline | f"Types[{name}]" >> ReadTypes(table)
        for name, table in zip(names, tables, strict=True)
    ]
    images = _images(exec_properties)
    reads = [ReadRows(*each, required, images) for each in zip(tables, types, strict=True)]
    if len(names) == 1 and splits:
        shares = [split.hash_buckets for split in splits]
        parts = pipeline | "SplitData" >> SplitRows(reads[0], splitting, shares)
    elif not splits and splitting.by == "content":
        kinds: list[Any] = [
            agreed | f"Kinds[{name}]" >> beam.Map(_kinds_with_files, list(images.files))
            for name, agreed in zip(names, types, strict=True)
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
    split_names = utils.generate_output_split_names(files, into)
    return dict(zip(split_names, parts, strict=True)), [read.skipped for read in reads]


_Kinds = Mapping[str, Kind | None]


def _kinds_with_files(agreed: Agreed, files: Sequence[str]) -> _Kinds:
    return {**agreed[0], **dict.fromkeys(files, "string")}


def _all_kinds(kinds: Iterable[_Kinds]) -> _Kinds:
    """Return the columns of all input splits; of several kinds, which later nodes refuse, one."""
    kinds = list(kinds)
    known: dict[str, Kind | None] = {}
    for name, kind in sorted(pair for each in kinds for pair in each.items() if pair[1]):
        known.setdefault(name, kind)
    return {name: known.get(name) for each in kinds for name in each}


def _all_columns(rows: Rows, own: _Kinds, known: _Kinds) -> pa.RecordBatch:
    """Add the columns in which another split alone has a value: all need the same columns."""
    batch = rows[1]
    columns = {
        name: batch[batch.schema.get_field_index(name)]
        if own.get(name)
        else pa.nulls(batch.num_rows, list_type(kind))
        for name, kind in sorted(known.items())
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _splitting(exec_properties: Mapping[str, Any], into: _Message) -> Splitting:
    options = _options(exec_properties).get("splitting")
    if options is not None:
        return Splitting.model_validate(options)
    column = into.split_config.partition_feature_name
    return Splitting(by="group", column=column) if column else Splitting(by="content")


class ReadTypes(beam.PTransform):
    """Finds the types and the parts of a table: Pipeline -> one `Agreed`."""

    def __init__(self, table: Table):
        super().__init__()
        self._table = table

    def expand(self, pipeline: Any) -> Any:
        """Examine the parts of the files in parallel."""
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


class ReadRows(beam.PTransform):
    """Reads a table: Pipeline -> `Rows`.

    Attributes:
        skipped: a line for each row that the last expansion left out.
    """

    skipped: Any

    def __init__(
        self,
        table: Table,
        types: Any,
        required: Sequence[str] = (),
        images: Images | None = None,
    ):
        """Take the result of `ReadTypes`, columns that a row needs a value of, and its images."""
        super().__init__()
        self._table, self._types, self._required = table, types, list(required)
        self._images = images or Images()

    def expand(self, pipeline: Any) -> Any:
        """Read the parts that the types name."""
        images = self._images
        skips = images.folder and images.on_damage == "skip"  # rows of tables stay errors
        read = (
            pipeline
            | "Once" >> beam.Create([None], reshuffle=False)
            | "Parts" >> beam.FlatMap(lambda _, agreed: agreed[1], AsSingleton(self._types))
            | "Spread" >> beam.Reshuffle()
            | "Read"
            >> beam.FlatMap(
                _read, AsSingleton(self._types), self._table, self._required, skips
            ).with_outputs(_SKIPPED, main="rows")
        )
        if images.files or images.columns:
            rows = read.rows
            if images.files:
                rows |= "Slices" >> beam.FlatMap(_slices)
                rows |= "SpreadImages" >> beam.Reshuffle()
            check = beam.FlatMap(_with_images, images)
            read = rows | "Images" >> check.with_outputs(_SKIPPED, main="rows")
        self.skipped = read[_SKIPPED]
        return read.rows | "Rows" >> beam.Values()


_SKIPPED = "skipped"
_Located: TypeAlias = tuple[str, Rows]  # and their file


def _read(
    part: Part, agreed: Agreed, table: Table, required: Sequence[str], skips: bool
) -> Iterator[_Located | TaggedOutput]:
    unreadable: list[str] | None = [] if skips else None
    for rows in table.read(part, agreed, unreadable=unreadable):
        yield part[0], with_values(rows, required) if required else rows
    yield from (TaggedOutput(_SKIPPED, line) for line in unreadable or ())


_SLICE_ROWS = 128  # whose images an element of Beam reads


def _slices(located: _Located) -> Iterator[_Located]:
    """Cut rows into slices, so that several workers read their images."""
    file, (places, batch) = located
    for start in range(0, max(1, len(places)), _SLICE_ROWS):
        end = start + _SLICE_ROWS
        yield file, (places[start:end], batch.slice(start, _SLICE_ROWS))


def _with_images(located: _Located, images: Images) -> Iterator[_Located | TaggedOutput]:
    """Add the files that columns name, and check the images that columns hold."""
    file, (places, batch) = located
    unreadable: list[str] | None = [] if images.on_damage == "skip" else None
    for rows, added in images_of(file, places, batch, images, unreadable):
        taken = batch.take(pa.array(rows))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns |= {name: as_lists(array, "string") for name, array in added.items()}
        names = sorted(columns)
        lists = as_batch([columns[n] for n in names], dict.fromkeys(names, "string"), len(rows))
        yield file, (places[rows], lists)
    yield from (TaggedOutput(_SKIPPED, line) for line in unreadable or ())


def with_values(rows: Rows, required: Sequence[str]) -> Rows:
    """Return the rows that have a value for each of some columns."""
    places, batch = rows
    kept = np.ones(batch.num_rows, bool)
    for name in required:
        place = batch.schema.get_field_index(name)
        kept &= _has_value(batch[place]) if place >= 0 else False
    return places[kept], batch.filter(pa.array(kept))


def _has_value(column: pa.LargeListArray) -> np.ndarray:
    counted = np.concatenate([[0], np.cumsum(are_usable(column.values))])
    offsets = column.offsets.to_numpy()
    return counted[offsets[1:]] > counted[offsets[:-1]]


def open_input(exec_properties: Mapping[str, Any], split_pattern: str) -> Table:
    """Open the files of a split as one table; the pattern of a window has one for each span."""
    folder = exec_properties[standard_component_specs.INPUT_BASE_KEY]
    patterns = split_pattern.split(SEPARATOR)
    files: list[str] = []
    for pattern in patterns:
        matches = _glob(f"{escape(folder)}/{pattern}")
        if not matches:
            raise ValueError(f"{folder}/{pattern} matches no file")
        files += sorted(matches)
    options = _options(exec_properties)
    if "csv" in options:
        table = csv_table.open_table(files, CsvOptions.model_validate(options["csv"]))
    elif options.get("tfrecord"):
        table = TfrecordTable(tuple(files))
    elif _images(exec_properties).folder:
        table = ImageTable(tuple(files))
    else:
        folders = [literal_folder(folder, each) for each in patterns]
        table = parquet.open_table(files, folders)
    if table.dropped:
        logging.warning("%s", table.dropped)
    return table


def _options(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ArrowExampleGen` that it packed into its `custom_config`."""
    config = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not config:
        return {}
    options = struct_pb2.Struct()
    proto_utils.json_to_proto(config, _PROTO.CustomConfig()).custom_config.Unpack(options)
    return json_format.MessageToDict(options)


def _images(exec_properties: Mapping[str, Any]) -> Images:
    return Images.model_validate(_options(exec_properties).get("images", {}))


class _SpanProcessor(InputProcessor):
    """TFX's interface to a resolved input: span, version, patterns, fingerprint."""

    def __init__(self, folder: str, splits: Iterable[_Message], range_config: _Message = None):
        """Take `input_base`, Input.Splits and a RangeConfig of any number of spans, or None."""
        super().__init__(splits=splits, range_config=None)  # TFX's own refuses several spans
        self._folder = folder
        self._patterns = {split.name: split.pattern for split in splits}
        self._window = _window(range_config)
        self._spans: dict[str, list[Span]] = {}

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """Return the latest span's number and version; (0, None) without placeholders."""
        with_spans = list(map(has_placeholders, self._patterns.values()))
        if not any(with_spans):
            if self._window:
                raise ValueError(
                    f"{self._folder}: {self._patterns}: range_config chooses among spans, and no "
                    "pattern has {SPAN} or a date"
                )
            return 0, None
        if not all(with_spans):
            raise ValueError(
                f"{self._folder}: {self._patterns}: a span or date is in the pattern of one split "
                "alone; put it into each"
            )
        self._spans = latest_spans(self._folder, self._patterns, _glob, **self._window)
        latest = next(iter(self._spans.values()))[-1]
        return latest.number, latest.version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        """Return the globs of the window's spans, as one text."""
        split = next((name for name, each in self._patterns.items() if each == pattern), None)
        if split is None or not self._spans:
            return pattern
        return SEPARATOR.join(each.pattern for each in self._spans[split])

    def get_latest_span(self) -> int:
        """Return the latest span's number."""
        return self.resolve_span_and_version()[0]

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        """Return sizes and times of all files that are read, as TFX's driver writes them."""
        return "\n".join(
            _fingerprint(name, f"{escape(self._folder)}/{each}")
            for name, pattern in self._patterns.items()
            for each in self.get_pattern_for_span_version(pattern, span, version).split(SEPARATOR)
        )


def _fingerprint(split: str, pattern: str) -> str:
    """Return TFX's fingerprint of files, or one of all files below folders of images."""
    folders = [path for path in _glob(pattern) if fileio.isdir(path)]
    if not folders:
        return io_utils.generate_fingerprint(split, pattern)
    files = [(folder, *file) for folder in sorted(folders) for file in list_images(folder)]
    return f"split:{split},files:{hashlib.sha256(repr(files).encode()).hexdigest()}"


class Driver(tfx_driver.FileBasedDriver):
    """TFX's driver, with windows of several spans."""

    def get_input_processor(
        self,
        splits: Iterable[_Message],
        range_config: _Message = None,
        input_base_uri: str | None = None,
    ) -> InputProcessor:
        """Return ours in place of FileBasedInputProcessor."""
        return _SpanProcessor(input_base_uri or "", splits, range_config)


class _WithoutStore(Driver):
    """A driver that has no metadata store, and needs none to resolve its input."""

    def __init__(self) -> None:
        pass


def _resolve_input(exec_properties: dict[str, Any], examples: Artifact) -> dict[str, Any]:
    """Resolve the input as ExampleGen's driver does, where none ran."""
    nothing: Any = None
    resolved = _WithoutStore().resolve_exec_properties(dict(exec_properties), nothing, nothing)
    tfx_driver.update_output_artifact(resolved, examples.mlmd_artifact)
    return resolved


def _glob(pattern: str) -> list[str]:
    return [str(path) for path in fileio.glob(pattern)]


def _window(range_config: _Message) -> dict[str, int]:
    """Return the arguments of `latest_spans`; {}: the latest span."""
    if range_config is None:
        return {}
    if range_config.WhichOneof("range") == "static_range":
        static = range_config.static_range
        first, last = static.start_span_number, static.end_span_number
        if last < first:
            raise ValueError(f"range_config: end_span_number={last} is below {first}")
        return {"count": last - first + 1, "last": last}
    rolling = range_config.rolling_range
    if rolling.num_spans < 1:
        raise ValueError(f"range_config: num_spans={rolling.num_spans}; use 1 or more")
    return {"count": rolling.num_spans, "first": rolling.start_span_number}
