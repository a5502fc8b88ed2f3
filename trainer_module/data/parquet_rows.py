"""Read Parquet files as blocks of features, without a Python object per row.

A column holds one feature. It is a number or bytes per row, or a list of as many values as the
feature has in a row, at most as many for a `PaddedFeature`. `pyarrow` is needed only here, and
comes with TFX.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import io
import itertools
import json
import math
import os
import threading
from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from trainer_module.data.row_source import BLOCK_ROWS, Feature, PaddedFeature, block_rows

SUFFIX = ".parquet"
_MAGIC = b"PAR1"
_GROUPS_AT_A_TIME = 20
# Most memory of the row groups that are open at a time, and of the read buffers of one: a local
# file is in the system's cache, and a remote one takes a request for each buffer.
_OPEN_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 20
_LOCAL_BUFFER_BYTES = 1 << 16  # of a column
_PAGE_BYTES = 2 << 20
# `interleave` opens parts before their turn: twice as many as those whose turn it is.
_OPEN_PER_TURN = 3
# Row groups that are opened early wait for long: they are closed, and opened again in their turn.
_MOST_OPEN = _GROUPS_AT_A_TIME + 4
_BLOCKS_IN_ORDER = 8

_Arrow: TypeAlias = Any  # objects of pyarrow, which has no types
_LENGTHS = "write as many values in each row as the feature has."
_NULLS = "replace missing values in Transform."


class _UnreadableRows(ValueError):
    """Rows of a Parquet file do not have the expected features; the message has the place.

    `explain_tf_error` finds the message by the name of this class in TensorFlow's error.
    """


class _Group(NamedTuple):
    """A row group: its file, its number there, its rows, and the number of its first row.

    The version is another one if the file was written again.
    """

    path: str
    version: str
    number: int
    rows: int
    first_row: int


class _Column(NamedTuple):
    """A feature: its name, the NumPy dtype of its values and its shape in a row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_padded: bool

    @property
    def values(self) -> int:
        """Number of values per row."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class ParquetRows:
    """Parquet files, as `TFRecordRows`; a part is a row group, a block is a dict of features."""

    files: tuple[str, ...]  # paths, in a fixed order
    feature_spec: dict[str, Feature]  # the columns to read
    most_rows: int = BLOCK_ROWS  # of a block

    block_shuffle_rows = 0

    @functools.cached_property
    def groups(self) -> tuple[_Group, ...]:
        """The row groups in the order of the files; one without rows if there is none.

        Raises:
            UnreadableRows: A file is not complete, or its columns are not those of the features.
        """
        groups: list[_Group] = []
        first_row = 0
        for path in self.files:
            footer = _footer(path)
            if sum(footer.rows) == 0:  # its columns may have no types
                continue
            self._check_types(path, footer.columns)
            for number, rows in enumerate(footer.rows):
                groups.append(_Group(path, footer.version, number, rows, first_row))
                first_row += rows
        return tuple(groups) or (_Group(self.files[0], "", 0, 0, 0),)

    @property
    def parts(self) -> int:
        """Number of row groups."""
        return len(self.groups)

    def in_order(self) -> tf.data.Dataset:
        """Return all rows in blocks, in the order of files and rows."""
        return self._in_order(1)

    def sampled(self, every: int) -> tf.data.Dataset:
        """Return each `every`-th row in blocks, some of which may be empty."""
        return self._in_order(every)

    def _in_order(self, every: int) -> tf.data.Dataset:
        rows = _BLOCKS_IN_ORDER * block_rows(self.feature_spec, self.most_rows)
        groups = tf.data.Dataset.range(self.parts)
        # Autograph's conversion takes longer than reading some thousand rows.
        group_rows = tf.autograph.experimental.do_not_convert(
            lambda group: self._group(group, rows, every)
        )
        return groups.flat_map(group_rows).prefetch(1)

    def in_turn(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return all rows in blocks, one block of each of several row groups in turn."""
        at_a_time = self._groups_at_a_time
        rows = block_rows(self.feature_spec, self.most_rows)
        return tf.data.Dataset.from_tensor_slices(order).interleave(
            lambda group: self._group(group, rows),
            cycle_length=at_a_time,
            num_parallel_calls=at_a_time,
            deterministic=True,
        )

    def one_by_one(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return the rows of `in_turn` as single elements."""
        return self.in_turn(order).unbatch()

    def parse(self, rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return a copy of the block: its features are read as they are."""
        return dict(rows)

    def _group(self, group: tf.Tensor, rows: int, every: int = 1) -> tf.data.Dataset:
        """Return the rows of the row group with this number in blocks, or each `every`-th row."""
        path, version, number, count, first_row = (
            tf.gather(tf.constant(values, tf.string if field < 2 else tf.int64), group)
            for field, values in enumerate(zip(*self.groups, strict=True))
        )
        columns = [
            _Column(
                name, f.dtype.as_numpy_dtype.__name__, tuple(f.shape), isinstance(f, PaddedFeature)
            )
            for name, f in self.feature_spec.items()
        ]
        text = tf.constant(json.dumps(columns))

        def read(start: tf.Tensor) -> dict[str, tf.Tensor]:
            end = tf.minimum(start + rows, count)
            # A function of this module with everything that it needs as arguments: TensorFlow
            # keeps only weak references to the functions of a graph.
            tensors = tf.numpy_function(
                _read_rows,
                [text, path, version, number, start, end, count],
                [f.dtype for f in self.feature_spec.values()],
            )
            found = dict(zip(self.feature_spec, tensors, strict=True))
            for name, tensor in found.items():
                tensor.set_shape([None, *self.feature_spec[name].shape])
            if every > 1:
                first = -(first_row + start) % every
                found = {name: tensor[first::every] for name, tensor in found.items()}
            return found

        return tf.data.Dataset.range(0, count, rows).map(read)

    @property
    def _groups_at_a_time(self) -> int:
        """Row groups to read in turn: 20, or fewer if they have many columns.

        An open row group holds a page of each of its columns.
        """
        most = 1
        for chunks in itertools.chain(*(_footer(path).chunks for path in self.files)):
            found = (chunks.get(name) for name in self.feature_spec)
            most = max(most, sum(min(_PAGE_BYTES, size) for size in found if size))
        fitting = _OPEN_BYTES // (_OPEN_PER_TURN * most)
        return max(1, min(_GROUPS_AT_A_TIME, self.parts, fitting))

    def _check_types(self, path: str, columns: tuple[tuple[str, _Arrow], ...]) -> None:
        for name, feature in self.feature_spec.items():
            types = [type_ for each, type_ in columns if each == name]
            if len(types) != 1:
                raise _UnreadableRows(
                    f"{path}: column {name!r} is {'twice' if types else 'not'} in the file, which "
                    f"has {', '.join(each for each, _ in columns[:20])}: write each transformed "
                    "feature as one column, or take the Transform output of these examples."
                )
            if reason := _why_not(types[0], feature):
                raise _UnreadableRows(f"{path}: column {name!r} is {types[0]}, {reason}.")


def is_parquet(path: str) -> bool:
    """Return whether a file starts as a Parquet file; False if it cannot be read."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except tf.errors.OpError:
        return False


class _Footer(NamedTuple):
    """What the end of a file says."""

    version: str  # another text if the file was written again
    columns: tuple[tuple[str, _Arrow], ...]  # (name, Arrow type) of each column
    rows: tuple[int, ...]
    # Bytes of each column of each row group; empty if a column has several parts
    chunks: tuple[dict[str, int], ...]


def _footer(path: str) -> _Footer:
    try:
        found = tf.io.gfile.stat(path)
    except tf.errors.OpError as error:
        raise _UnreadableRows(f"{path} cannot be read: {error.message}") from None
    return _read_footer(path, found.length, found.mtime_nsec)


@functools.lru_cache(maxsize=1024)
def _read_footer(path: str, size: int, mtime_nsec: int) -> _Footer:
    """Return the footer of a file of this size and time."""
    with _open_file(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        # Parts of columns are in the order of the columns.
        names = schema.names if metadata.num_columns == len(schema.names) else []
        return _Footer(
            f"{size} {mtime_nsec}",
            tuple(zip(schema.names, schema.types, strict=True)),
            tuple(group.num_rows for group in groups),
            tuple(
                {name: group.column(i).total_uncompressed_size for i, name in enumerate(names)}
                for group in groups
            ),
        )


def _open_file(path: str, columns: int = 1) -> _Arrow:
    """Return a pyarrow.parquet.ParquetFile on any file system that TensorFlow knows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path}: Parquet files need pyarrow; pip install pyarrow."
        ) from None
    try:
        # Buffered, so that a column of a row group is not in memory as a whole.
        buffer = max(1 << 14, _BUFFER_BYTES // columns)
        if "://" in path:
            return pq.ParquetFile(io.BufferedReader(_Remote(path)), buffer_size=buffer)
        return pq.ParquetFile(pa.OSFile(path), buffer_size=min(buffer, _LOCAL_BUFFER_BYTES))
    except (pa.ArrowException, OSError, tf.errors.OpError) as error:
        raise _UnreadableRows(
            f"{path} is not a complete Parquet file ({error}): write it again."
        ) from None


class _Remote(io.RawIOBase):
    """A file of TensorFlow's file systems, as pyarrow reads it."""

    def __init__(self, path: str) -> None:
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        found = self._file.read(len(into))
        into[: len(found)] = found
        return len(found)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


class _OpenGroup:
    """A row group that is read from its beginning to its end."""

    def __init__(self, columns: tuple[_Column, ...], path: str, number: int, rows: int) -> None:
        self._columns, self._path, self._number = columns, path, number
        self._file = _open_file(path, len(columns))
        self._place = 0
        self._batches = self._read(rows)
        self._rest: _Arrow = None

    def read(self, rows: int) -> dict[str, np.ndarray]:
        """Return the next rows of each column, `[rows, *shape]`."""
        parts: list[dict[str, np.ndarray]] = []
        while rows > 0:
            batch = self._rest if self._rest is not None else next(self._batches)
            now, self._rest = batch.slice(0, rows), None
            if batch.num_rows > rows:
                self._rest = batch.slice(rows)
            parts.append({c.name: self._array(now.column(c.name), c) for c in self._columns})
            rows -= now.num_rows
            self._place += now.num_rows
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def close(self) -> None:
        """Free the memory, which a generator that refers to its object keeps until a collection."""
        self._batches.close()
        self._rest = None

    def _read(self, rows: int) -> Generator[_Arrow, None, None]:
        import pyarrow as pa

        names = [column.name for column in self._columns]
        try:
            yield from self._file.iter_batches(
                rows, row_groups=[self._number], columns=names, use_threads=False
            )
        except (pa.ArrowException, OSError, tf.errors.OpError) as error:
            raise _UnreadableRows(
                f"{self._path}, row group {self._number}: cannot be read after row {self._place} "
                f"({error}): the file is damaged; write it again."
            ) from None
        raise _UnreadableRows(
            f"{self._path}, row group {self._number}: it ends after row {self._place}, before the "
            "number of rows in its metadata: the file is damaged; write it again."
        )

    def _array(self, array: _Arrow, column: _Column) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.types as types

        rows = len(array)
        lists = lengths = None
        if _is_list(array.type):
            lists, array = array, array.flatten()
        if (lists is not None and lists.null_count) or array.null_count:
            row = _first_null(lists, array, column.values)
            raise _UnreadableRows(f"{self._where(column, row)}: a null value: {_NULLS}")
        if lists is not None and not types.is_fixed_size_list(lists.type):
            lengths = np.diff(lists.offsets.to_numpy())
            wrong = lengths > column.values if column.is_padded else lengths != column.values
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise _UnreadableRows(
                    f"{self._where(column, row)}: {lengths[row]} values, but the feature has the "
                    f"shape {list(column.shape)}: {_LENGTHS}"
                )
        if column.dtype == "object" and not types.is_large_binary(array.type):
            array = array.cast(pa.large_binary())
        values = array.to_numpy(zero_copy_only=False)
        if column.dtype != "object":
            values = values.astype(column.dtype, copy=False)
        if column.is_padded and lengths is not None:
            padded = np.zeros((rows, *column.shape), values.dtype)
            padded[np.arange(column.values) < lengths[:, None]] = values
            return padded
        return values.reshape(rows, *column.shape)

    def _where(self, column: _Column, row: int) -> str:
        return (
            f"{self._path}, row group {self._number}, row {self._place + row}, "
            f"column {column.name!r}"
        )


# Row groups that were read in part, by what their next reader asks for. A reader that finds none
# opens the row group and reads up to its place.
_open_groups: collections.OrderedDict[tuple[bytes | int, ...], _OpenGroup] = (
    collections.OrderedDict()
)
_lock = threading.Lock()


def _read_rows(
    columns: bytes,
    path: bytes,
    version: bytes,
    number: np.int64,
    start: np.int64,
    end: np.int64,
    rows: np.int64,
) -> list[np.ndarray]:
    """Return the rows from `start` to `end` of a row group with `rows` rows, column by column."""
    part = (columns, path, version, int(number))
    with _lock:
        group = _open_groups.pop((*part, int(start)), None)
    read = _columns(columns)
    if group is None:
        group = _OpenGroup(read, path.decode(), int(number), int(end - start))
        if start > 0:
            group.read(int(start))
    found = group.read(int(end - start))
    finished: _OpenGroup | None = group
    if end < rows:
        with _lock:
            _open_groups[(*part, int(end))] = group
            is_full = len(_open_groups) > _MOST_OPEN
            finished = _open_groups.popitem(last=False)[1] if is_full else None
    if finished is not None:
        finished.close()
    return [found[column.name] for column in read]


@functools.lru_cache(maxsize=64)
def _columns(text: bytes) -> tuple[_Column, ...]:
    return tuple(
        _Column(name, dtype, tuple(shape), padded)
        for name, dtype, shape, padded in json.loads(text)
    )


def _first_null(lists: _Arrow, values: _Arrow, per_row: int) -> int:
    if lists is not None and lists.null_count:
        return int(np.flatnonzero(lists.is_null().to_numpy(zero_copy_only=False))[0])
    place = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
    return place // max(1, per_row)


def _is_list(type_: _Arrow) -> bool:
    import pyarrow.types as types

    return types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)


def _why_not(type_: _Arrow, feature: Feature) -> str:
    """Return why a column of an Arrow type is not the feature; empty if it is."""
    import pyarrow.types as types

    values = math.prod(feature.shape)
    if types.is_fixed_size_list(type_) and type_.list_size != values:
        return f"but the feature has the shape {list(feature.shape)}: {_LENGTHS[:-1]}"
    if not _is_list(type_) and values != 1:
        return f"but the feature has the shape {list(feature.shape)}: write lists"
    value = type_.value_type if _is_list(type_) else type_
    wanted = feature.dtype
    if wanted == tf.string:
        kinds = (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string)
        if any(is_kind(value) for is_kind in kinds):
            return ""
        return "which is not text or bytes: encode it in Transform"
    is_number = types.is_boolean(value) or types.is_integer(value) or types.is_floating(value)
    if is_number and np.can_cast(value.to_pandas_dtype(), wanted.as_numpy_dtype, "safe"):
        return ""
    return f"whose values are not {wanted.name} without loss: write them as {wanted.name}"
