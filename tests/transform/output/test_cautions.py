"""What Transform says of columns that lost what their data held.

Reference: the counts of the data below; the steps of float32 from NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROWS = 200
RNG = np.random.default_rng(1)
AROUND = 10**9 + RNG.integers(-1, 2, ROWS)
COLUMNS: dict[str, list[Any]] = {
    "when": ["13/05/2020" if i % 4 else "2020-05-13" for i in range(ROWS - 1)] + [""],
    "epoch": [1_700_000_000_000 + i for i in range(ROWS)],  # milliseconds, read as seconds
    "read": ["2020-05-13"] * ROWS,
    "int_around": [int(v) for v in AROUND],
    "float_around": [float(v) for v in AROUND],
    "float_coarse": [float(v) for v in 10**9 + RNG.integers(-500, 500, ROWS)],
    "constant": [5.0] * ROWS,
    "int_sum": [int(v) for v in 10**9 + RNG.integers(-500, 500, ROWS)],
    "float_label": [float(v) for v in 10**9 + RNG.integers(-5000, 5000, ROWS)],
    "zeros": [0.0 if i % 10 else float(i) for i in range(ROWS)],
    "even": [float(i) for i in range(ROWS)],
}
NUMBERS = ["int_around", "float_around", "float_coarse", "constant"]


@pytest.fixture(scope="module")
def found(run_transform: Any) -> list[str]:
    from transform import column_cautions

    groups = [
        {"name": "d", "columns": ["when", "epoch", "read"], "encode": {"date": {"parts": "month"}}},
        {"name": "n", "columns": NUMBERS, "scale": "z_score"},
        {"name": "b", "columns": ["zeros", "even"], "encode": {"bucketize": {"buckets": 5}}},
    ]
    groups.append({"name": "m", "columns": ["int_sum"], "scale": "none"})
    label = {"column": "float_label", "kind": "regression"}
    result = run_transform({"groups": groups, "label": label}, COLUMNS)
    assert np.ptp(result.column("int_around")) > 1.0  # int64 keeps what float32 loses
    assert not result.column("float_around").any()
    served = result.output.transform_raw_features(result.raw(without=("float_label",)))
    assert set(result.written) - set(served) == {"float_label"}  # needed by no feature
    warnings = column_cautions(result.uri)
    assert all(repr(each.column) in each.what and each.fix for each in warnings)
    return [str(each) for each in warnings]


def _of(found: list[str], column: str) -> str:
    (sentence,) = (s for s in found if s.startswith(f"column {column!r}"))
    return sentence


def test_only_columns_that_lost_something_are_reported(found: list[str]) -> None:
    assert len(found) == 7, found


def test_dates_that_cannot_be_read(found: list[str]) -> None:
    said = _of(found, "when")
    unread = COLUMNS["when"].count("13/05/2020")
    assert f"cannot read {unread / (ROWS - 1):.1%} of the values ({unread} of {ROWS - 1})" in said
    assert "for example '13/05/2020'" in said
    said = _of(found, "epoch")
    assert "100.0%" in said
    assert "for example '1700000000000'" in said


def test_floats_beyond_float32(found: list[str]) -> None:
    step = np.spacing(np.float32(1e9))
    assert f"one value (1e+09): 0 everywhere. tf.Example keeps float32, which is {step:g}" in _of(
        found, "float_around"
    )
    assert f"float32, which is {step:g} coarse" in _of(found, "float_coarse")
    # The metrics of a label are far smaller than its range.
    assert f"tf.Example keeps float32, which is {step:g} coarse" in _of(found, "float_label")


def test_scalers_that_take_no_offset_off(found: list[str]) -> None:
    said = _of(found, "int_sum")
    assert f"scale: none keeps float32, which is {np.spacing(np.float32(1e9)):g} coarse" in said
    assert "Use scale: z_score" in said


def test_buckets_of_a_column_of_zeros(found: list[str]) -> None:
    said = _of(found, "zeros")
    assert "4 of the 4 boundaries of encode: bucketize are 0" in said
    assert "of 5 buckets, at most 2 are used" in said
