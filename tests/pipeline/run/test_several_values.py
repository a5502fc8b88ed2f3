"""Lists in columns of which a model takes one value are found in the column that has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.run.raw_rows import ModelRows, Wrong
from pipeline.run.several_values import rows_of_several_values


@pytest.mark.parametrize("names", [("tags", "size"), ("size", "tags")])
def test_a_column_that_takes_lists_is_not_blamed_for_another(names):
    """The model takes several values of `tags`, and one of `size`."""
    lists = {
        "tags": pa.array([[1, 2], [], [1, 2, 3], [4, 5]], pa.list_(pa.int64())),
        "size": pa.array([[1, 2], [1], [2], [3, 4]], pa.list_(pa.int64())),
    }
    rows = ModelRows(np.array([0, 2, 5, 7]), {name: lists[name] for name in names}, [])

    def takes(some: ModelRows) -> bool:
        return all(len(values) <= 1 for values in some.columns["size"].to_pylist())

    assert rows_of_several_values(rows, takes) == [
        Wrong(0, "size", "[1, 2]", "one value"),
        Wrong(7, "size", "[3, 4]", "one value"),
    ]
