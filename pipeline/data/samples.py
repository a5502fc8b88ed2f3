"""The first rows of the data in columns, as tf.Examples would hold them.

A column is read and converted on request, because a check needs only a few of 300 columns.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.common.errors import ConfigError
from pipeline.data.tables import CsvBlock

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind
    from components.arrow_example_gen.csv_types import CsvTypes
    from components.arrow_example_gen.parquet import Hole, ParquetTable, RowGroup
    from components.arrow_example_gen.tfrecord import Block


@dataclass(frozen=True)
class Values:
    """The values of a column, row by row.

    Attributes:
        offsets: int `[rows + 1]`, start of the values of each row.
        values: All values in the order of the rows: int64, float32 or bytes.
    """

    offsets: np.ndarray
    values: pa.Array

    @cached_property
    def usable(self) -> np.ndarray:
        """Bool `[values]`: not NaN, infinite or an empty text; these are missing in Transform."""
        import pyarrow.compute as pc
        import pyarrow.types as types

        if types.is_floating(self.values.type):
            return np.isfinite(self.values.to_numpy(zero_copy_only=False))
        if types.is_integer(self.values.type):
            return np.ones(len(self.values), bool)
        lengths = pc.binary_length(self.values).to_numpy(zero_copy_only=False)
        return lengths > 0

    @cached_property
    def present(self) -> np.ndarray:
        """Bool `[rows]`: whether the row has a usable value."""
        counts = np.concatenate([[0], np.cumsum(self.usable)])[self.offsets]
        return np.diff(counts) > 0

    def first(self, rows: np.ndarray) -> pa.Array:
        """Return the first value of each selected row (bool `[all rows]`); each must have one."""
        import pyarrow as pa

        return self.values.take(pa.array(self.offsets[:-1][rows]))


class Sample(ABC):
    """The rows of the data that `peek` has read."""

    rows: int

    def __init__(self) -> None:
        """Create a sample in which no column has been read."""
        self._known: dict[str, Values] = {}

    def values(self, name: str) -> Values:
        """Return the values of a column."""
        if name not in self._known:
            lists = self._lists(name)
            offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
            self._known[name] = Values(offsets - offsets[0], lists.flatten())
        return self._known[name]

    def widths(self, name: str) -> np.ndarray:
        """Return int `[rows]`: a column's number of values in each row; the values are not kept."""
        return np.diff(self._lists(name).offsets.to_numpy(zero_copy_only=False))

    def exact(self, name: str) -> np.ndarray:
        """Return the usable values of a float column as float64, as exact as the source."""
        values = self.values(name)
        return values.values.to_numpy(zero_copy_only=False)[values.usable].astype(np.float64)

    def texts(self, name: str) -> list[bytes]:
        """Return the usable values of a string column."""
        import pyarrow as pa

        values = self.values(name)
        return values.values.take(pa.array(np.flatnonzero(values.usable))).to_pylist()

    def hole(self, name: str) -> Hole | None:
        """Return the first row of a list of ints that a tf.Example cannot represent, or None."""
        return None

    @abstractmethod
    def _lists(self, name: str) -> pa.ListArray: ...

    @abstractmethod
    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows, by number, as ExampleGen writes them."""

    @abstractmethod
    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the index in its file of each row, by number, as ExampleGen counts them."""


class Subset(Sample):
    """Some of the rows of another sample."""

    def __init__(self, sample: Sample, kept: np.ndarray):
        """Select rows by their numbers, in order."""
        super().__init__()
        self._sample, self._kept, self.rows = sample, kept, len(kept)

    def _lists(self, name: str) -> pa.ListArray:
        import pyarrow as pa

        return self._sample._lists(name).take(pa.array(self._kept))

    def exact(self, name: str) -> np.ndarray:
        """Return the values of all rows, which serve as well to check the rounding to float32."""
        return self._sample.exact(name)

    def hole(self, name: str) -> Hole | None:
        """Return the first one of all rows, because files are read before rows are dropped."""
        return self._sample.hole(name)

    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows by their numbers among the selected rows."""
        return self._sample.batch(self._kept[rows])

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices in the other sample: rows are counted before some are dropped."""
        return self._sample.places(self._kept[rows])


class CsvSample(Sample):
    """Blocks of cells, and the column types that all of them determine."""

    def __init__(self, blocks: Sequence[CsvBlock], types: CsvTypes, rows: int):
        """Store the cells as text until a column is requested.

        Args:
            blocks: Blocks of texts, null if there is no value.
            types: Types of the columns.
            rows: Number of rows in the blocks.
        """
        super().__init__()
        self._blocks, self._types, self.rows = [each.cells for each in blocks], types, rows
        self._starts = [each.start for each in blocks]

    def _texts(self, name: str) -> pa.Array:
        import pyarrow as pa

        parts = [block[block.schema.get_field_index(name)] for block in self._blocks]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def _lists(self, name: str) -> pa.ListArray:
        from components.arrow_example_gen.columns import as_lists

        return as_lists(self._typed(name, self._texts(name)), self._types.kinds[name] or "string")

    def exact(self, name: str) -> np.ndarray:
        """Return the values before ExampleGen rounds them to float32."""
        cells = self._typed(name, self._texts(name)).drop_null()
        return _finite(cells.to_numpy(zero_copy_only=False))

    def _typed(self, name: str, texts: pa.Array) -> pa.Array:
        try:
            return self._types.converted(name, texts)
        except ValueError as error:  # beyond the counted rows
            raise ConfigError(f"data: column {name!r}: {error}") from None

    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows, by number, as ExampleGen writes them."""
        import pyarrow as pa

        from components.arrow_example_gen.columns import as_batch, as_lists

        wanted = pa.array(rows)
        lists = [
            as_lists(self._typed(name, self._texts(name).take(wanted)), kind)
            for name, kind in self._types.kinds.items()
            if kind is not None
        ]
        return as_batch(lists, self._types.kinds, len(rows))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices, counted in each file from 0."""
        return _places(self._starts, [block.num_rows for block in self._blocks], rows)


class ParquetSample(Sample):
    """The first row groups, up to a number of rows."""

    def __init__(self, table: ParquetTable, rows: int):
        """Select the first rows of a table.

        Args:
            table: The open files.
            rows: Maximum number of rows.
        """
        super().__init__()
        self._table, self.rows = table, min(rows, table.rows)

    def _batches(self, names: Sequence[str]) -> list[_Batch]:
        from components.arrow_example_gen.parquet import batches

        read, left = [], self.rows
        with _as_config_error():
            for group in self._table.groups:
                if left <= 0:
                    break
                start = 0
                for batch in batches(group, names):
                    read.append(_Batch(group, start, batch.slice(0, left)))
                    start += batch.num_rows
                    left -= batch.num_rows
                    if left <= 0:
                        break
        return read

    def exact(self, name: str) -> np.ndarray:
        """Return the values before ExampleGen rounds them to float32; lists as in `values`."""
        import pyarrow as pa
        import pyarrow.types as types

        columns = [part.batch[0] for part in self._batches([name])]
        if not all(types.is_float64(c.type) or types.is_decimal(c.type) for c in columns):
            return super().exact(name)
        cells = [column.drop_null().cast(pa.float64()) for column in columns]
        return _finite(np.concatenate([c.to_numpy(zero_copy_only=False) for c in cells]))

    def _lists(self, name: str) -> pa.ListArray:
        import pyarrow as pa

        kinds: dict[str, Kind] = {name: self._table.columns[name] or "string"}
        return pa.concat_arrays([part.lists(kinds)[0] for part in self._batches([name])])

    def hole(self, name: str) -> Hole | None:
        """Return the first missing value inside a list of a column, or None."""
        from components.arrow_example_gen.parquet import first_hole

        with _as_config_error():
            return first_hole(self._table, name)

    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows, by number, as ExampleGen writes them."""
        from components.arrow_example_gen.columns import as_batch

        kinds: dict[str, Kind] = {
            name: kind for name, kind in self._table.columns.items() if kind is not None
        }
        found: list[pa.RecordBatch] = []
        start = 0
        for part in self._batches(list(kinds)):
            wanted = rows[(rows >= start) & (rows < start + part.batch.num_rows)] - start
            start += part.batch.num_rows
            if len(wanted):
                lists = part.lists(kinds, wanted)
                found.append(as_batch(lists, self._table.columns, len(wanted)))
        return _joined(found, self._table.columns)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices, counted in each row group from `first_number`."""
        from components.arrow_example_gen.parquet import first_number

        batches = self._batches([next(iter(self._table.columns))])
        starts = [first_number(part.group) + part.start for part in batches]
        return _places(starts, [part.batch.num_rows for part in batches], rows)


class _Batch(NamedTuple):
    """Rows of a row group that begin at row `start`."""

    group: RowGroup
    start: int
    batch: pa.RecordBatch

    def lists(
        self, kinds: Mapping[str, Kind], rows: np.ndarray | None = None
    ) -> list[pa.ListArray]:
        """Return the columns, of all rows or of rows given by their numbers in the batch."""
        import pyarrow as pa

        from components.arrow_example_gen.parquet import row_lists

        batch, wanted = self.batch, np.arange(self.batch.num_rows)
        if rows is not None:
            batch, wanted = batch.take(pa.array(rows)), rows
        with _as_config_error():
            return row_lists(batch, kinds, self.group, rows=(wanted + self.start).tolist())


@contextlib.contextmanager
def _as_config_error() -> Iterator[None]:
    """Convert errors in a file into ConfigErrors about the data."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"data: {error}") from None


class TfrecordSample(Sample):
    """Blocks of records."""

    def __init__(self, blocks: Sequence[Block], kinds: Mapping[str, Kind | None]):
        """Create a sample from decoded records.

        Args:
            blocks: The first blocks of the files.
            kinds: Feature -> type, None if no record has a value.
        """
        super().__init__()
        self._blocks, self._kinds = list(blocks), kinds
        self.rows = sum(block.rows for block in blocks)

    def _lists(self, name: str) -> pa.ListArray:
        import pyarrow as pa

        from components.arrow_example_gen.tfrecord import all_columns

        kind: Mapping[str, Kind | None] = {name: self._kinds[name] or "string"}
        return pa.concat_arrays([all_columns(block, kind)[0] for block in self._blocks])

    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows, by number, as ExampleGen writes them."""
        import pyarrow as pa

        from components.arrow_example_gen.columns import as_batch
        from components.arrow_example_gen.tfrecord import all_columns

        found: list[pa.RecordBatch] = []
        start = 0
        for block in self._blocks:
            wanted = rows[(rows >= start) & (rows < start + block.rows)] - start
            start += block.rows
            if len(wanted):
                lists = [each.take(pa.array(wanted)) for each in all_columns(block, self._kinds)]
                found.append(as_batch(lists, self._kinds, len(wanted)))
        return _joined(found, self._kinds)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices, counted in each file from 0."""
        starts = [block.start for block in self._blocks]
        return _places(starts, [block.rows for block in self._blocks], rows)


def _places(starts: Sequence[int], sizes: Sequence[int], rows: np.ndarray) -> np.ndarray:
    """Return the indices of rows, by number, in parts that begin at `starts`."""
    everywhere = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return np.concatenate(everywhere)[rows]


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _joined(batches: Sequence[pa.RecordBatch], kinds: Mapping[str, Kind | None]) -> pa.RecordBatch:
    import pyarrow as pa

    from components.arrow_example_gen.columns import as_batch

    if not batches:
        return as_batch([], dict.fromkeys(kinds), 0)
    columns = [
        pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batches[0].schema.names)
