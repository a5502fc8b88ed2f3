"""Record batches as the extractors pass them on: their rows, and these as tf.Examples."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_model_analysis import constants
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from components.column_evaluation.record_batches import _PrepareRecordBatches


def prepare(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the record batches that one bundle of record batches becomes."""
    prepared = _PrepareRecordBatches()
    prepared.start_bundle()
    found = [
        extracts
        for batch in batches
        for extracts in prepared.process({constants.ARROW_RECORD_BATCH_KEY: batch})
    ]
    found += [each.value for each in prepared.finish_bundle()]
    return [extracts[constants.ARROW_RECORD_BATCH_KEY] for extracts in found]


def lists(values: list[list[float] | None]) -> pa.Array:
    return pa.array(values, pa.large_list(pa.float32()))


def test_rows_of_parquet_become_tf_examples() -> None:
    values = [[float(i)] if i % 3 else ([] if i % 2 else None) for i in range(20_000)]
    batch = pa.RecordBatch.from_arrays([lists(values)], ["x"])
    found = prepare(batch)
    assert [each.num_rows for each in found] == [8_192, 8_192, 3_616]
    assert len(pickle.dumps(found[2])) < len(pickle.dumps(found[0])) / 2, "without other rows"
    rows = [x for each in found for (x,) in each.column(1).to_pylist()]
    assert found[0].schema.names == ["x", constants.ARROW_INPUT_COLUMN]
    expected = [each or None for each in values]
    assert ExamplesToRecordBatchDecoder().DecodeBatch(rows).column(0).to_pylist() == expected
    assert [x for each in found for x in each.column(0).to_pylist()] == expected
    parsed = tf.io.parse_example(rows, {"x": tf.io.FixedLenFeature([], tf.float32, -1.0)})
    np.testing.assert_array_equal(parsed["x"], [x[0] if x else -1.0 for x in values])


def test_small_batches_are_merged_and_keep_their_serialized_rows() -> None:
    rows = [[f"row {i}".encode()] for i in range(9_000)]
    batches = [
        pa.RecordBatch.from_arrays(
            [lists([[1.0]] * 750), pa.array(rows[i : i + 750], pa.large_list(pa.large_binary()))],
            ["x", constants.ARROW_INPUT_COLUMN],
        )
        for i in range(0, 9_000, 750)
    ]
    found = prepare(*batches)
    assert [each.num_rows for each in found] == [7_500, 1_500]
    assert [row for each in found for row in each.column(1).to_pylist()] == rows


def test_other_types_and_wide_rows_stay_apart() -> None:
    ints = pa.RecordBatch.from_arrays([pa.array([[1]], pa.large_list(pa.int64()))], ["x"])
    floats = pa.RecordBatch.from_arrays([lists([[1.0]])], ["x"])
    assert [each.column(0).to_pylist() for each in prepare(ints, floats, floats)] == [
        [[1]],
        [[1.0], [1.0]],
    ]
    wide = lists([[0.0] * 2_000] * 1_500)
    found = prepare(pa.RecordBatch.from_arrays([wide], ["x"]))
    assert [each.num_rows for each in found] == [1_000, 500]
