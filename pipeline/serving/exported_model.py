"""The description of a pushed model, read without loading it: versions, signatures, columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems

if TYPE_CHECKING:
    from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

SERVING_DEFAULT = "serving_default"
RAW = "raw"
_COLUMNS = "assets.extra/raw_columns.json"


class RawColumn(NamedTuple):
    """A raw column that the model reads.

    Attributes:
        name: Name in the data.
        dtype: string, float32 or int64.
        argument: Input of the signature `raw`.
        shape: Shape of that input without the batch dimension; None if any length is possible.
    """

    name: str
    dtype: str
    argument: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class ExportedModel:
    """A SavedModel of this pipeline.

    Attributes:
        place: The folder that it was read from.
        tensorflow: TensorFlow version that wrote it.
        signatures: Names of outputs by signature.
        columns: Raw columns that serving takes.
    """

    place: str
    tensorflow: str
    signatures: Mapping[str, Sequence[str]]
    columns: Sequence[RawColumn]


def find_version(place: str) -> str:
    """Return the SavedModel at a place, or the highest-numbered version below it.

    Args:
        place: Folder on this machine, or on a file system of TensorFlow.

    Raises:
        ConfigError: There is no SavedModel, or the place cannot be read.
    """
    from tensorflow.io import gfile

    register_file_systems(place)
    place = place.rstrip("/")
    try:
        if gfile.exists(f"{place}/saved_model.pb"):
            return place
        names = [name.rstrip("/") for name in gfile.listdir(place)] if gfile.isdir(place) else []
        versions = [n for n in names if n.isdigit() and gfile.exists(f"{place}/{n}/saved_model.pb")]
    except Exception as error:  # no credentials, no such bucket, no network
        raise ConfigError(
            f"--model={place}: cannot be read ({_first_line(error)}). Check the credentials of "
            "this machine, or name a copy with --map PREFIX=FOLDER."
        ) from None
    if not versions:
        raise ConfigError(
            f"--model={place}: no SavedModel there, and none in a numbered folder below. A run "
            "prints where it pushed the model; --map PREFIX=FOLDER names a copy on this machine."
        )
    return f"{place}/{max(versions, key=int)}"


def read_model(version: str) -> ExportedModel:
    """Read the description of a SavedModel.

    Args:
        version: Folder of the SavedModel, as `find_version` returns it.

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
    if graph is None or not {SERVING_DEFAULT, RAW} <= set(graph.signature_def):
        raise ConfigError(
            f"--model={version}: has no signatures {SERVING_DEFAULT} and {RAW}; use a model that "
            "this pipeline pushed."
        )
    inputs = graph.signature_def[RAW].inputs
    try:
        listed = json.loads(_read(f"{version}/{_COLUMNS}"))["columns"]
    except Exception as error:
        raise ConfigError(
            f"--model={version}: {_COLUMNS} cannot be read ({_first_line(error)}); use a model "
            "that this pipeline pushed."
        ) from None
    columns = [
        RawColumn(c["name"], c["dtype"], c["argument"], _row_shape(inputs[c["argument"]]))
        for c in listed
    ]
    signatures = {
        name: sorted(signature.outputs)
        for name, signature in graph.signature_def.items()
        if signature.method_name.startswith("tensorflow/serving/")
    }
    return ExportedModel(version, graph.meta_info_def.tensorflow_version, signatures, columns)


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


def _row_shape(info: TensorInfo) -> tuple[int, ...] | None:
    sizes = tuple(dim.size for dim in info.tensor_shape.dim[1:])
    return None if any(size < 0 for size in sizes) else sizes


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
