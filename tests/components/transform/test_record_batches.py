"""Sizes of record batches and of row groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from components.transform.record_batches import RowGroups, cut


def batch(rows: int, values: int) -> pa.RecordBatch:
    """Rows of this many float32, numbered."""
    flat = np.repeat(np.arange(rows, dtype=np.float32), values)
    lists = pa.LargeListArray.from_arrays(pa.array(np.arange(rows + 1) * values), pa.array(flat))
    return pa.RecordBatch.from_arrays([lists], ["x"])


@pytest.mark.parametrize(
    ("rows", "values", "most"), [(40_000, 1, 16_384), (100, 2**16, 63), (3, 2**22, 1), (0, 1, 0)]
)
def test_batches_are_cut_by_rows_and_bytes(rows, values, most):
    whole = batch(rows, values)
    parts = list(cut(whole))
    assert max((part.num_rows for part in parts), default=0) == most
    assert pa.Table.from_batches(parts, whole.schema).equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize(
    ("rows", "values", "expected"),
    [(16_384, 1, [65_536, 65_536, 32_768]), (1_000, 4_096, [5_000, 5_000])],
)
def test_row_groups_do_not_depend_on_batches(rows, values, expected):
    groups = RowGroups()
    groups.start_bundle()
    part = batch(rows, values)
    tables = [table for _ in range(10) for table in groups.process(part)]
    tables += [last.value for last in groups.finish_bundle()]
    assert [table.num_rows for table in tables] == expected
