"""The first rows of the data in columns, as tf.Examples would hold them.

A column is read and converted on request, because a check needs only a few of 300 columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from components.arrow_example_gen.columns import Block, Kind, Table, are_usable, as_batch
from pipeline.data.tables import config_errors


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
        return are_usable(self.values)

    @cached_property
    def present(self) -> np.ndarray:
        """Bool `[rows]`: whether the row has a usable value."""
        counts = np.concatenate([[0], np.cumsum(self.usable)])[self.offsets]
        return np.diff(counts) > 0

    def first(self, rows: np.ndarray) -> pa.Array:
        """Return the first value of each selected row (bool `[all rows]`); each must have one."""
        return self.values.take(pa.array(self.offsets[:-1][rows]))


@dataclass(frozen=True)
class Sample:
    """The first rows of a table, or some of them.

    Attributes:
        table: The files.
        kinds: Column -> type; None if no row has a value.
        types: What the table needs to read them.
        total: Number of the first rows.
        read: Those rows; None: they are read by column on request.
        chosen: The rows of the sample among them, by number; None: all.
    """

    table: Table
    kinds: Mapping[str, Kind | None]
    types: Any
    total: int
    read: Sequence[Block] | None = None
    chosen: np.ndarray | None = None
    _known: dict[str, Values] = field(default_factory=dict, init=False)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.total if self.chosen is None else len(self.chosen)

    def subset(self, rows: np.ndarray) -> Sample:
        """Return some rows, by number, in order."""
        return replace(self, chosen=self._numbers(rows))

    def values(self, name: str) -> Values:
        """Return the values of a column."""
        if name not in self._known:
            kinds: dict[str, Kind | None] = {name: self.kinds[name] or "string"}
            with config_errors("data: "):
                blocks = self._blocks([name])
                parts = [self.table.decoded(block, kinds, self.types)[0] for block in blocks]
            lists = pa.concat_arrays(parts)
            if self.chosen is not None:
                lists = lists.take(pa.array(self.chosen))
            offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
            self._known[name] = Values(offsets - offsets[0], lists.flatten())
        return self._known[name]

    def texts(self, name: str) -> list[bytes]:
        """Return the usable values of a string column."""
        values = self.values(name)
        return values.values.take(pa.array(np.flatnonzero(values.usable))).to_pylist()

    def batch(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return rows, by number, as ExampleGen writes them."""
        numbers = self._numbers(rows)
        found: list[pa.RecordBatch] = []
        start = 0
        with config_errors("data: "):
            for block in self._blocks([name for name, kind in self.kinds.items() if kind]):
                end = start + len(block.places)
                inside = numbers[(numbers >= start) & (numbers < end)] - start
                start = end
                if len(inside):
                    lists = self.table.decoded(block.take(inside), self.kinds, self.types)
                    found.append(as_batch(lists, self.kinds, len(inside)))
        if not found:
            return as_batch([], dict.fromkeys(self.kinds), 0)
        return pa.Table.from_batches(found).combine_chunks().to_batches()[0]

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the place in its file of each row, by number, as ExampleGen counts them."""
        blocks = self._blocks(list(self.kinds)[:1])
        return np.concatenate([block.places for block in blocks])[self._numbers(rows)]

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.chosen is None else self.chosen[rows]

    def _blocks(self, names: Sequence[str]) -> Sequence[Block]:
        if self.read is not None:
            return self.read
        blocks, left = [], self.total
        for block in self.table.all_blocks(names):
            blocks.append(block if len(block.places) <= left else block.take(np.arange(left)))
            left -= len(block.places)
            if left <= 0:
                break
        return blocks
