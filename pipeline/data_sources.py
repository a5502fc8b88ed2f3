"""CSV, TFRecord and Parquet: an ExampleGen node for each, and a look at the files before it runs.

The look (`peek`) reads a bounded number of rows, so that a missing file, an empty one, or a column
that the features name and the data lacks is known before Beam starts.
"""

from __future__ import annotations

import csv
import glob
import importlib.resources
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.config import PACKAGE_SCHEME, ConfigError, DataConfig, is_remote

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx.dsl.components.base.base_node import BaseNode

ColumnType = Literal["int", "float", "string", "unknown"]

PEEKED_ROWS = 100_000
"""Rows that `peek` reads to learn the columns' types."""


@dataclass(frozen=True)
class DataPeek:
    """What the first rows of the data show.

    Attributes:
        columns: name -> type, "unknown" where no row read has a value.
        rows: number of rows read; the data has more when `complete` is False.
        complete: the whole data was read.
    """

    columns: dict[str, ColumnType]
    rows: int
    complete: bool

    def schema(self) -> schema_pb2.Schema:
        """The columns that hold a value, as a TFDV schema, which `FeatureSpec.check` takes."""
        from tensorflow_metadata.proto.v0 import schema_pb2

        types = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "string": schema_pb2.BYTES}
        schema = schema_pb2.Schema()
        for name, kind in self.columns.items():
            if kind != "unknown":
                schema.feature.add(name=name, type=types[kind])
        return schema


def resolve(path: str, field: str) -> Path:
    """The file or glob on this machine that a path of the YAML names.

    Raises:
        ConfigError: a `package://` path whose package is not installed or lacks the file.
    """
    if not path.startswith(PACKAGE_SCHEME):
        return Path(path)
    package, _, inside = path.removeprefix(PACKAGE_SCHEME).partition("/")
    try:
        resource = importlib.resources.files(package) / inside
    except ModuleNotFoundError:
        raise ConfigError(
            f"{field}={path}: no Python package {package!r} is installed. "
            "Install it, or name a file."
        ) from None
    return Path(str(resource))


def files(path: str, field: str, *, base: str = "the YAML's own folder") -> list[Path]:
    """The local files that a path or glob names, sorted.

    Args:
        path: file, glob or `package://...`.
        field: what an error calls it.
        base: where relative paths start, for the error.

    Raises:
        ConfigError: there is none, or one is empty or not a file.
    """
    resolved = resolve(path, field)
    found = [Path(name) for name in sorted(glob.glob(str(resolved)))]
    if not found:
        raise ConfigError(
            f"{field}={path}: no such file. Relative paths start at {base} (looked for {resolved})."
        )
    for file in found:
        if file.is_dir():
            raise ConfigError(
                f"{field}={path}: {file} is a folder. Name the files in it: {file}/*."
            )
        if file.stat().st_size == 0:
            raise ConfigError(
                f"{field}={path}: {file} is empty (0 bytes). It needs at least one row."
            )
    return found


def peek(
    data: DataConfig,
    field: Literal["path", "eval_path"] = "path",
    *,
    label: str | None = None,
) -> DataPeek | None:
    """Reads the first rows of the data.

    Args:
        data: where they are.
        field: which of its paths.
        label: what an error calls that path; None: its place in the YAML.

    Returns:
        What they show, or None for data on a remote file system.

    Raises:
        ConfigError: no such file, an empty one, one without a row, or one of another format.
    """
    path = getattr(data, field)
    if is_remote(path):
        return None
    label = label or f"data.{field}"
    found = files(path, label)
    try:
        result = {"csv": _peek_csv, "tfrecord": _peek_tfrecord, "parquet": _peek_parquet}[
            data.source
        ](found)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    if result.rows == 0:
        raise ConfigError(
            f"{label}={path}: no rows"
            + (" below the header line." if data.source == "csv" else ".")
            + " A pipeline needs rows to train on."
        )
    return result


def example_gen(data: DataConfig) -> BaseNode:
    """The node that brings the rows in as tf.Examples, split into `train` and `eval`."""
    from tfx import v1 as tfx

    from components import ArrowExampleGen

    folder, input_config = _input(data)
    if data.eval_path:
        output_config = None
    else:
        train, held_out = 100 - data.eval_percent, data.eval_percent
        split = tfx.proto.SplitConfig.Split
        output_config = tfx.proto.Output(
            split_config=tfx.proto.SplitConfig(
                splits=[
                    split(name="train", hash_buckets=train),
                    split(name="eval", hash_buckets=held_out),
                ]
            )
        )
    arguments: dict[str, Any] = {
        "input_base": folder,
        "input_config": input_config,
        "output_config": output_config,
    }
    if data.source == "csv":
        return tfx.components.CsvExampleGen(**arguments)
    if data.source == "tfrecord":
        return tfx.components.ImportExampleGen(**arguments)
    return ArrowExampleGen(**arguments)


def _input(data: DataConfig) -> tuple[str, Any]:
    """ExampleGen takes one folder and a pattern per split below it."""
    from tfx import v1 as tfx

    train = _folder_and_name(data.path, "data.path")
    split = tfx.proto.Input.Split
    if not data.eval_path:
        return train[0], tfx.proto.Input(splits=[split(name="all", pattern=train[1])])
    held_out = _folder_and_name(data.eval_path, "data.eval_path")
    base = _common_folder(train[0], held_out[0])
    patterns = [
        f"{folder.removeprefix(base).lstrip('/')}/{name}".lstrip("/")
        for folder, name in (train, held_out)
    ]
    return base, tfx.proto.Input(
        splits=[
            split(name="train", pattern=patterns[0]),
            split(name="eval", pattern=patterns[1]),
        ]
    )


def _folder_and_name(path: str, field: str) -> tuple[str, str]:
    full = path if is_remote(path) else str(resolve(path, field))
    folder, _, name = full.rpartition("/")
    if glob.has_magic(folder):
        raise ConfigError(
            f"{field}={path}: a wildcard is allowed in the file's name, not in its folder."
        )
    return folder, name


def _common_folder(first: str, second: str) -> str:
    parts = []
    for left, right in zip(first.split("/"), second.split("/"), strict=False):
        if left != right:
            break
        parts.append(left)
    return "/".join(parts) or "/"


def wider(known: ColumnType, text: str) -> ColumnType:
    """The type of a column after one more value, as TFX's CSV reader infers it."""
    if not text or known == "string":
        return known
    try:
        int(text)
        return "int" if known == "unknown" else known
    except ValueError:
        pass
    try:
        float(text)
        return "float"
    except ValueError:
        return "string"


def csv_rows(found: Iterable[Path]) -> Iterator[tuple[list[str], list[str]]]:
    """Header and cells of each row, as TFX reads them.

    Raises:
        ConfigError: a file is no CSV, its header is unusable, or a row has more or fewer cells.
    """
    known: list[str] = []
    for file in found:
        with file.open(newline="", encoding="utf-8") as stream:
            try:
                first_line = stream.readline()
                _check_first_line(first_line, file)
                # Exactly as TFX splits it.
                header = first_line.strip().split(",")
                _check_header(header, known, file)
                known = header
                reader = csv.reader(stream)
                for row in reader:
                    if not row:
                        continue
                    if len(row) != len(header):
                        raise ConfigError(
                            f"{file}, line {reader.line_num + 1}: {len(row)} cells under a header "
                            f"of {len(header)} columns. Correct it, or quote cells with commas."
                        )
                    yield header, row
            except (UnicodeDecodeError, csv.Error) as error:
                raise ConfigError(
                    f"{file} is no UTF-8 CSV file ({error}). Set data.source to its format."
                ) from None


def _peek_csv(found: list[Path]) -> DataPeek:
    columns: dict[str, ColumnType] = {}
    rows = 0
    for header, row in csv_rows(found):
        columns = columns or dict.fromkeys(header, "unknown")
        rows += 1
        if rows > PEEKED_ROWS:
            return DataPeek(columns, PEEKED_ROWS, complete=False)
        for name, cell in zip(header, row, strict=True):
            columns[name] = wider(columns[name], cell)
    return DataPeek(columns, rows, complete=True)


def _check_first_line(line: str, file: Path) -> None:
    """TFX splits the first line at every comma and takes the pieces as they are."""
    if line.startswith("\ufeff"):
        raise ConfigError(
            f"{file}: starts with a byte order mark, which would become part of the first column's "
            "name. Save it as UTF-8 without BOM."
        )
    if '"' in line:
        raise ConfigError(
            f"{file}: the first line has quotes, which TFX would take as part of the columns' "
            f"names: {line.strip()}. Write the names without quotes and without commas in them."
        )


def _check_header(header: list[str], known: list[str], file: Path) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated or not all(header):
        raise ConfigError(
            f"{file}: the first line must name every column once; "
            + (f"repeated: {', '.join(repeated)}." if repeated else "one name is empty.")
        )
    if known and known != header:
        raise ConfigError(
            f"{file}: its header differs from the first file's: "
            f"{', '.join(sorted(set(known) ^ set(header))) or 'another order of columns'}. "
            "All CSV files of one data set need the same header."
        )


def _peek_parquet(found: list[Path]) -> DataPeek:
    import pyarrow
    import pyarrow.parquet
    import pyarrow.types as types

    columns: dict[str, ColumnType] = {}
    rows = 0
    for file in found:
        try:
            parquet = pyarrow.parquet.ParquetFile(file)
        except pyarrow.ArrowInvalid as error:
            raise ConfigError(
                f"{file} is no Parquet file ({error}). Set data.source to its format."
            ) from None
        rows += parquet.metadata.num_rows
        for column in parquet.schema_arrow:
            kind = column.type
            if types.is_list(kind) or types.is_large_list(kind):
                kind = kind.value_type
            if types.is_integer(kind):
                columns[column.name] = "int"
            elif types.is_floating(kind):
                columns[column.name] = "float"
            elif types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
                columns[column.name] = "string"
            else:
                raise ConfigError(
                    f"{file}: column {column.name!r} has Parquet type {kind}, which tf.Example "
                    "cannot hold. Write it as an integer, a float or a string, or drop it."
                )
    return DataPeek(columns, rows, complete=True)


def _peek_tfrecord(found: list[Path]) -> DataPeek:
    import tensorflow as tf

    columns: dict[str, ColumnType] = {}
    rows = 0
    kinds: dict[str | None, ColumnType] = {
        "int64_list": "int",
        "float_list": "float",
        "bytes_list": "string",
        None: "unknown",
    }
    try:
        for serialized in islice(tfrecords(found), PEEKED_ROWS + 1):
            rows += 1
            if rows > PEEKED_ROWS:
                return DataPeek(columns, PEEKED_ROWS, complete=False)
            for name, feature in tf.train.Example.FromString(serialized).features.feature.items():
                kind = kinds[feature.WhichOneof("kind")]
                if columns.get(name, "unknown") == "unknown":
                    columns[name] = kind
    except ConfigError:
        raise
    except Exception as error:  # protobuf and TensorFlow name a bad record in different ways
        raise ConfigError(
            f"{found[0]} is no TFRecord file of tf.Example ({type(error).__name__}: {error}). "
            "Set data.source to its format."
        ) from None
    return DataPeek(columns, rows, complete=True)


def tfrecords(found: Iterable[Path]) -> Iterator[bytes]:
    """The serialized records of the files.

    Raises:
        ConfigError: a file is compressed, which Beam would not see.
    """
    import tensorflow as tf

    for file in found:
        with file.open("rb") as stream:
            compression = "GZIP" if stream.read(2) == b"\x1f\x8b" else ""
        if compression and file.suffix != ".gz":
            raise ConfigError(
                f"{file} is compressed with gzip, which Beam only sees by the name. "
                f"Rename it to {file.name}.gz."
            )
        yield from tf.data.TFRecordDataset(str(file), compression).as_numpy_iterator()
