"""Rows that have a value for each of some columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("apache_beam")

from components.arrow_example_gen.executor import have_values

BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([[0], [], [-1], None, [3, 4]], pa.large_list(pa.int64())),
        pa.array(
            [[0.0], [], [float("nan")], [float("inf"), 1.0], [2.5]], pa.large_list(pa.float32())
        ),
        pa.array([[b"a"], [b""], [], [b"", b"a"], [b"no"]], pa.large_list(pa.large_binary())),
        pa.nulls(5, pa.large_list(pa.large_binary())),
    ],
    ["int", "float", "text", "empty"],
)
EXPECTED = {
    ("int",): [True, False, True, False, True],
    ("float",): [True, False, False, True, True],
    ("text",): [True, False, False, True, True],
    ("empty",): [False] * 5,
    ("unknown",): [False] * 5,
    ("int", "float"): [True, False, False, False, True],
    (): [True] * 5,
}


@pytest.mark.parametrize("columns", EXPECTED)
def test_what_transform_takes_as_missing_is_no_value(columns):
    """Zeros are values; NaN, infinities and empty texts are not; of slices too."""
    assert have_values(BATCH, columns).tolist() == EXPECTED[columns]
    assert have_values(BATCH.slice(2, 2), columns).tolist() == EXPECTED[columns][2:4]
