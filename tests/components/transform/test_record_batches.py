"""Sizes of record batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from components.transform.record_batches import cut


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
