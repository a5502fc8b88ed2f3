"""The sample of rows that are read in batches with different columns, and the log."""

from __future__ import annotations

import logging
import re

import numpy as np
import pyarrow as pa
import pytest

from components.input_gradients import executor as rows_of_a_sample
from components.input_gradients.executor import _as_lists, _lists_of, _log_end, _SmallestHashes
from components.input_gradients.summary import AttributionSummary

FLOATS, TEXTS = pa.large_list(pa.float32()), pa.large_list(pa.large_binary())
NUMBERS = np.arange(12, dtype=np.float32)


def batch(numbers, texts=None):
    columns = {"x": pa.array([[number] for number in numbers], FLOATS)}
    if texts is not None:
        columns["t"] = texts
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


BATCHES = (
    batch(NUMBERS[:4]),
    batch(NUMBERS[4:8], pa.nulls(4)),
    batch(NUMBERS[8:], pa.array([[b"a"], None, [b"b"], [b"c"]], TEXTS)),
)


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([[b"a", b"b"], [], None], TEXTS), "string", [[b"a", b"b"], None, None]),
        (pa.array([[1, 2], [None]], pa.large_list(pa.int64())), "int", [[1, 2], None]),
        (pa.array([True, None]), "int", [[1], None]),
        (pa.array([0.5, 1.5]).slice(1), "float", [[1.5]]),
    ],
)
def test_columns_become_lists_without_empty_ones(column, kind, expected):
    found = _lists_of(column, kind)
    assert found.to_pylist() == expected
    assert found.type.value_type in (pa.int64(), pa.float32(), pa.large_binary())


def test_a_large_batch_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(rows_of_a_sample, "_BYTES", 100)
    whole = pa.RecordBatch.from_arrays([pa.array(NUMBERS), pa.array([{"a": 1}] * 12)], ["x", "s"])
    parts = list(_as_lists(whole))
    assert len(parts) > 1
    assert {name for part in parts for name in part.schema.names} == {"x"}
    assert np.concatenate([part["x"].flatten() for part in parts]).tolist() == NUMBERS.tolist()


@pytest.mark.parametrize("order", [BATCHES, BATCHES[::-1]])
def test_a_batch_may_lack_a_column(order):
    """In any order and on any number of workers: 5 of the rows with all 12, in the same order."""
    every, few = _SmallestHashes(100), _SmallestHashes(5)
    found = []
    for sample in (every, few):
        workers = [sample.add_input(sample.create_accumulator(), each) for each in order]
        found.append(sample.extract_output(sample.merge_accumulators(workers)).to_pydict())
    rows = dict(zip(np.ravel(found[0]["x"]), found[0]["t"], strict=True))
    expected = {8: [b"a"], 10: [b"b"], 11: [b"c"]}
    assert rows == {number: expected.get(number) for number in range(12)}
    assert found[1] == {name: values[:5] for name, values in found[0].items()}
    one = few.create_accumulator()
    for each in order:
        one = few.add_input(one, each)
    assert few.extract_output(one).to_pydict() == found[1]


def test_a_column_of_two_types_is_rejected():
    sample = _SmallestHashes(5)
    one = sample.add_input(sample.create_accumulator(), BATCHES[0])
    ints = pa.RecordBatch.from_arrays([pa.array([[1]], pa.large_list(pa.int64()))], ["x"])
    with pytest.raises(ValueError, match=r"x has incompatible types: .*float.*int64.*one type"):
        sample.extract_output(sample.add_input(one, ints))


def test_a_large_error_is_a_warning(caplog):
    """The limit is 1 % of the mean change."""
    means = dict.fromkeys(("mean_prediction", "mean_absolute_change"), 2.0)
    columns = {name: {"x": 2.0} for name in ("mean_absolute", "mean")}
    for error, warned in ((0.019, []), (0.021, ["steps=32"])):
        rest = {"mean_baseline_prediction": 0.0, "split": "eval", "steps": 8, "rows": 1}
        rest["mean_absolute_completeness_error"] = error
        summary = AttributionSummary.model_validate({**means, **columns, **rest})
        with caplog.at_level(logging.WARNING, logger="absl"):
            _log_end(summary)
        assert re.findall(r"such as (steps=\d+)", caplog.text) == warned
