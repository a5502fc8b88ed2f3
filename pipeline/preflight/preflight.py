"""Check data, features and functions before anything expensive runs."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.common.errors import ConfigError, missing_columns
from pipeline.common.object_stores import missing_buckets
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.data.peek import DataPeek, peek
from pipeline.data.tables import beyond_int64
from pipeline.engines.engine import check_beam
from pipeline.graph.user_nodes import import_callable
from pipeline.preflight.preflight_rows import check_rows
from pipeline.tracking.export import check_server
from shared_core.nearest import nearest_column
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.devices.process import GpuMissing, check_gpu_visible
from transform import check_spec

if TYPE_CHECKING:
    from transform.spec.group import ResolvedGroup


def check_writable(config: PipelineConfig) -> None:
    """Create the folders that the run writes to.

    Raises:
        ConfigError: A folder cannot be created or written to, or TFX and Beam cannot read below it.
    """
    for field, folder in (
        ("output.folder", config.output.folder),
        ("serving.push_folder", config.push_folder),
        ("metadata.path", str(config.metadata_path.parent)),
    ):
        if is_remote(folder):
            raise ConfigError(
                f"{field}={folder}: a run on this machine needs a folder on this machine. "
                f"Use --set {field}=<folder>, or run the pipeline where {folder} can be reached."
            )
        # With a wildcard, beam.io.WriteToTFRecord does not find the files that it wrote.
        if field == "output.folder" and glob.has_magic(folder):
            raise ConfigError(
                f"output.folder={folder}: Beam and TFX treat `[`, `*` and `?` in a path as "
                "wildcards. Name a folder without them, or rename its parent folder."
            )
        _check_writable(Path(folder), field)


def check(config: PipelineConfig) -> DataPeek | None:
    """Check the data, the features, the user's functions and the engine.

    Returns:
        The first rows of the data, or None for remote data.

    Raises:
        ConfigError: Names the field, its value and the fix.
    """
    _check_buckets(config)
    seen = check_data(config)
    for function, field in config.training_functions.items():
        import_callable(function, field)
    _check_names(config)
    _check_workers(config)
    _check_gpu(config)
    check_server(config)
    _check_engine(config)
    return seen


def check_data(config: PipelineConfig) -> DataPeek | None:
    """Check only the data and the features; see `check`."""
    seen = _peek(config, "path")
    held_out = _peek(config, "eval_path") if config.data.eval_path else None
    if config.data_schema.path and not is_remote(config.data_schema.path):
        _check_schema_file(config, Path(config.data_schema.path))
    if config.features.derive:
        import_callable(config.features.derive, "features.derive")
    if seen:
        groups = _check_columns(config, seen)
        names = [name for group in groups for name in group.columns]
        names += [*config.features.raw_columns(), *config.slices]
        known = [name for name in names if name in seen.columns]
        # The images themselves are read and checked by ExampleGen alone.
        used = tuple(each for each in dict.fromkeys(known) if each not in config.image_columns)
        if held_out:
            _check_same_columns(config, used, seen, held_out)
        check_rows(config, groups, used, seen, held_out)
    return seen


def _check_engine(config: PipelineConfig) -> None:
    paths = {
        "data.path": config.data.path,
        "data.eval_path": config.data.eval_path,
        "output.folder": config.output.folder,
    }
    local = {field: path for field, path in paths.items() if path and not is_remote(path)}
    check_beam(config.beam, local)


def _check_buckets(config: PipelineConfig) -> None:
    for field, path in (
        ("data.path", config.data.path),
        ("data.eval_path", config.data.eval_path),
        ("schema.path", config.data_schema.path),
    ):
        if missing := missing_buckets(path or ""):
            raise ConfigError(f"{field}={path}: {missing}")


def _peek(config: PipelineConfig, field: Literal["path", "eval_path"]) -> DataPeek | None:
    """Return the rows of a path, without those that are dropped."""
    seen, label = peek(config.data, field), config.label.column
    if seen is None or not config.data.drop_rows_without_label:
        return seen
    if label not in seen.columns:
        raise ConfigError(
            f"data.drop_rows_without_label: the label {label!r} is not a column of the data, "
            "and rows are left out before features.derive sees them. Remove it, and give every row "
            "a label in features.derive."
        )
    return seen.having(label)


def _check_writable(folder: Path, field: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{field}={folder}: cannot write there ({error.strerror}). "
            "Name a folder that you may write to, or change its permissions."
        ) from None


def _check_same_columns(
    config: PipelineConfig, used: Sequence[str], train: DataPeek, held_out: DataPeek
) -> None:
    path = f"data.eval_path={config.data.eval_path}"
    lacking = [name for name in used if name not in held_out.columns]
    if lacking:
        others = [name for name in held_out.columns if name not in train.columns]
        raise ConfigError(
            f"{path}: {missing_columns(lacking, others)} (in data.path, and in use). Both files "
            "need the same columns."
        )
    for name in used:
        kinds = train.columns[name], held_out.columns[name]
        if kinds[1] == "unknown":
            raise ConfigError(
                f"{path}: column {name!r} has no value in any of the {held_out.rows:,} rows read, "
                "so no model that uses it can be evaluated. Add values, or remove it from the "
                "features."
            )
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"{path}: column {name!r} is of type {kinds[1]} there, and of type {kinds[0]} in "
                f"data.path={config.data.path}. Write it as the same type in both"
                + (", all values as 1.0 or all as 1." if set(kinds) == {"int", "float"} else ".")
            )


def _check_schema_file(config: PipelineConfig, path: Path) -> None:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(path.read_text(encoding="utf-8"), schema_pb2.Schema())
    except OSError as error:
        raise ConfigError(
            f"schema.path={path}: cannot read it ({error.strerror}). Name a schema.pbtxt, "
            "or remove schema.path to infer the schema from the data."
        ) from None
    except text_format.ParseError as error:
        raise ConfigError(
            f"schema.path={path}: not a TFDV schema in text format ({error}). Write one with "
            "tfdv.write_schema_text."
        ) from None
    try:
        # The schema has domains and lists, which the first rows may not show.
        check_spec(config.features, schema)
    except ValueError as error:
        raise ConfigError(f"features, by schema.path={path}: {error}") from None


def _check_columns(config: PipelineConfig, seen: DataPeek) -> tuple[ResolvedGroup, ...]:
    for column in (*config.features.raw_columns(), *config.slices):
        if seen.columns.get(column) == "unknown":
            raise ConfigError(
                f"features: column {column!r} of data.path={config.data.path} has no value in any "
                f"of the {seen.rows} rows read. Remove it from the features."
            )
        if column in seen.left_out:
            raise ConfigError(
                f"features: column {column!r} of data.path={config.data.path} is of type "
                f"{seen.left_out[column]}, which a tf.Example cannot hold. Write it as numbers, "
                "texts, or lists of these, or remove it from the features."
            )
    try:
        groups = check_spec(config.features, seen.schema())
    except ValueError as error:
        raise ConfigError(f"features: {error}{_why_text(str(error), seen)}") from None
    for column, field in config.slices.items():
        if column not in seen.columns:
            raise ConfigError(
                f"{field}: column {column!r} is not in data.path={config.data.path}; "
                f"{nearest_column(column, seen.columns, but=[config.label.column])}"
            )
    return groups


def _why_text(error: str, seen: DataPeek) -> str:
    """A sentence, where an error is of a column of ints that is text because of one of them."""
    for name, kind in seen.columns.items():
        if kind == "string" and repr(name) in error and seen.sample is not None:
            beyond = beyond_int64(v.decode(errors="replace") for v in seen.sample.texts(name))
            if beyond is not None:
                return (
                    f". Column {name!r} is text because of its value {beyond}, which int64 does "
                    "not hold (-2^63 to 2^63 - 1): remove it, or write all values with a decimal "
                    "point, as floats."
                )
    return ""


def _check_gpu(config: PipelineConfig) -> None:
    """The Trainer would fail too, after all nodes before it."""
    if not config.training.require_gpu:
        return
    try:
        check_gpu_visible()
    except GpuMissing as error:
        raise ConfigError(f"training.{error}") from None


def _check_workers(config: PipelineConfig) -> None:
    for training in config.trainings:
        several = training.strategy in ("multi_worker", "parameter_server")
        if several and training.workers is None and cluster_of_environment() is None:
            raise ConfigError(
                f"training.strategy={training.strategy}: say how many with training.workers, which "
                "starts so many processes on this machine (2 for a trial); on a cluster the "
                "platform names them in TF_CONFIG."
            )


def _check_names(config: PipelineConfig) -> None:
    # Here, since it takes TensorFlow, which takes seconds to import.
    from trainer_module.model.plan import resolve_all

    try:
        resolve_all(config.trainings, label_kind=config.label.kind, section="training")
    except ValueError as error:
        raise ConfigError(str(error)) from None
