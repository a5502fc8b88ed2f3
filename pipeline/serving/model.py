"""A pushed model, read without loading it, and a JSON request for it.

A request is one of TensorFlow Serving's REST API (`:predict`, row format). `serving_default` has
one input, serialized tf.Examples, which JSON encodes as `{"b64": ...}`. `raw` has one input per
column; every row names all of them, with lists of equal length in one request.
Source: tensorflow_serving/g3doc/api_rest.md and util/json_tensor.cc, 2.16 to 2.20.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pipeline.common.errors import ConfigError, first_line, missing_columns
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.run.input_rows import cell_reading, format_of, input_files, open_rows
from pipeline.run.predictor import KINDS
from pipeline.run.raw_rows import ModelRows, model_rows

if TYPE_CHECKING:
    from components import CsvOptions
    from components.arrow_example_gen.columns import Kind

ServingTarget = Literal["kserve", "vertex"]
SIGNATURES: dict[ServingTarget, str] = {"kserve": "raw", "vertex": "serving_default"}
"""The signature that requests call: Vertex' predict passes on `instances` alone."""

_COLUMNS = "assets.extra/raw_columns.json"
_MISSING = {"string": b"", "float32": float("nan"), "int64": int(np.iinfo(np.int64).min)}


class _RawColumn(NamedTuple):
    """A raw column that the model reads."""

    name: str
    dtype: str  # string, float32 or int64
    argument: str  # input of the signature `raw`
    shape: tuple[int, ...] | None  # without the batch dimension; None if any length is possible


@dataclass(frozen=True)
class ExportedModel:
    """A SavedModel of this pipeline: its folder, the TensorFlow that wrote it, its raw columns."""

    place: str
    tensorflow: str
    columns: Sequence[_RawColumn]


def read_model(version: str) -> ExportedModel:
    """Read the description of a SavedModel, whose folder `find_version` returns.

    Raises:
        ConfigError: The SavedModel is damaged, or this pipeline did not export it.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        saved = saved_model_pb2.SavedModel.FromString(_read(f"{version}/saved_model.pb"))
    except DecodeError:
        raise ConfigError(f"--model={version}: saved_model.pb is damaged; push it again.") from None
    graph = next((g for g in saved.meta_graphs if "serve" in g.meta_info_def.tags), None)
    if graph is None or not set(SIGNATURES.values()) <= set(graph.signature_def):
        raise ConfigError(
            f"--model={version}: has no signatures serving_default and raw; use a model that "
            "this pipeline pushed."
        )
    inputs = graph.signature_def["raw"].inputs
    try:
        listed = json.loads(_read(f"{version}/{_COLUMNS}"))["columns"]
    except Exception as error:
        raise ConfigError(
            f"--model={version}: {_COLUMNS} cannot be read ({first_line(error)}); use a model "
            "that this pipeline pushed."
        ) from None
    columns = []
    for column in listed:
        info = inputs[column["argument"]]
        sizes = tuple(dim.size for dim in info.tensor_shape.dim[1:])
        shape = None if any(size < 0 for size in sizes) else sizes
        columns.append(_RawColumn(column["name"], column["dtype"], column["argument"], shape))
    return ExportedModel(version, graph.meta_info_def.tensorflow_version, columns)


def mapped(place: str, maps: Mapping[str, str]) -> str:
    """Return the folder on this machine that replaces a place, or the place if none does."""
    for prefix in sorted(maps, key=len, reverse=True):
        if place == prefix or place.startswith(f"{prefix.rstrip('/')}/"):
            return f"{maps[prefix].rstrip('/')}{place.removeprefix(prefix.rstrip('/'))}"
    return place


def _read(path: str) -> bytes:
    from tensorflow.io import gfile

    with gfile.GFile(path, "rb") as stream:
        return stream.read()


def request_body(
    target: ServingTarget, model: ExportedModel, source: str, csv_options: CsvOptions | None
) -> str:
    """Return a `:predict` request of the first rows of a file, which is read as `predict` does.

    Raises:
        ConfigError: The file does not exist, or has no rows, a column is missing, or a value has
            another type.
    """
    import pyarrow as pa

    names = [column.name for column in model.columns]
    kind = format_of(source)
    with input_files(source, kind) as files:
        reading = cell_reading(model.place, files, source, kind, csv_options)
        found = open_rows(files, source, kind, reading, skip=False)
        if lacking := sorted(set(names) - set(found.columns)):
            others = [name for name in found.columns if name not in names]
            raise ConfigError(
                f"--rows={source}: {missing_columns(lacking, others)} (required by the model). "
                "Add them; leave a cell empty where the value is missing."
            )
        kinds: dict[str, Kind] = {column.name: KINDS[column.dtype] for column in model.columns}
        found.needed = kinds
        batch = next((each for each in found.batches if each.num_rows), None)
        if batch is None:
            raise ConfigError(f"--rows={source}: has no rows; give a file with at least one.")
        batch = batch.slice(0, 3)
        columns = [
            batch[name] if name in batch.schema.names else pa.nulls(batch.num_rows)
            for name in names
        ]
        rows = model_rows(pa.RecordBatch.from_arrays(columns, names), kinds, found.decimal)
    if rows.wrong:
        wrong = rows.wrong[0]
        location = found.location(wrong.column, wrong.value, wrong.row)
        raise ConfigError(
            f"--rows={source}{location}: {wrong.column}={wrong.value!r} is not "
            f"{wrong.expected}, which the model expects there. Correct it."
        )
    if SIGNATURES[target] == "serving_default":
        texts = [base64.b64encode(example).decode() for example in rows.examples()]
        return _as_json({}, [{"b64": text} for text in texts])
    values = {c.argument: _column_values(c, rows, source) for c in model.columns}
    instances = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return _as_json({"signature_name": "raw"}, instances)


def _as_json(head: JsonObject, instances: list[JsonValue]) -> str:
    """Return the body with one line per row, so that people can read the example."""
    # TensorFlow Serving reads the token NaN, which is the missing value of `raw`.
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in instances)
    parts = [*(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())]
    return "{" + ", ".join([*parts, f'"instances": [\n  {rows}\n]']) + "}\n"


def _column_values(column: _RawColumn, rows: ModelRows, source: str) -> list[JsonValue]:
    """Return a JSON value per row: lists of equal length, or scalars, by the input's shape."""
    lists = [[_json_value(v) for v in row] for row in rows.columns[column.name].to_pylist()]
    if column.shape is None:
        longest = max(1, *(len(row) for row in lists))
        filler = _json_value(_MISSING[column.dtype])
        return [row + [filler] * (longest - len(row)) for row in lists]
    size = int(np.prod(column.shape))  # 1 without dimensions
    for number, row in enumerate(lists, 1):
        if len(row) != size:
            raise ConfigError(
                f"--rows={source}, row {number}: {column.name} has {len(row)} values, and the "
                f"model takes {size} in every row. Correct it."
            )
    return [np.reshape(np.array(row, object), column.shape).tolist() for row in lists]


def _json_value(value: bytes | float | int | None) -> JsonValue:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, float):
        return float(str(np.float32(value)))  # 0.1, not 0.10000000149011612
    return value
