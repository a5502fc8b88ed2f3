"""Rows of token ids of any length: how both formats are read, and to which length they are cut.

Reference: the written lists, padded with 0 by NumPy.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import parquet_files
import pyarrow as pa
import pytest
import tensorflow as tf
from tfrecords import serialized

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.common.sequences import lengths_by_level
from trainer_module.data.input_pipeline import Examples
from trainer_module.data.row_source import PaddedFeature
from trainer_module.devices.replicas import Replicas

ROWS, LONGEST = 500, 100
SPEC = {"ids": PaddedFeature((LONGEST,), tf.int64), "y": tf.io.FixedLenFeature([1], tf.int64)}
RANDOM = np.random.default_rng(0)
# 200 rows of up to 16 ids, then rows of up to 100.
LISTS = [
    RANDOM.integers(1, 9, n) for n in [*RANDOM.integers(0, 17, 200), *RANDOM.integers(0, 101, 300)]
]
PADDED = np.stack([np.pad(row, (0, LONGEST - len(row))) for row in LISTS])


@pytest.fixture(scope="module", params=["parquet", "tfrecord"])
def examples(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "parquet":
        columns = {"ids": pa.array(LISTS, pa.large_list(pa.int64())), "y": np.arange(ROWS)[:, None]}
        file = parquet_files.write_parquet(folder / "rows.parquet", columns, group_rows=70)
    else:
        file = str(folder / "rows")
        with tf.io.TFRecordWriter(file) as writer:
            for number, row in enumerate(LISTS):
                writer.write(serialized({"ids": row.tolist(), "y": [number]}))
    return Examples((file,), SPEC, "y")


def test_rows_are_read_as_they_were_written(examples):
    batches = list(examples.batches(64).as_numpy_iterator())
    np.testing.assert_array_equal(np.concatenate([x["ids"] for x, _ in batches]), PADDED)
    assert examples.batches(64).element_spec[0]["ids"].shape.as_list() == [None, LONGEST]
    (part,) = itertools.islice(examples.every(7, 50).as_numpy_iterator(), 1)
    np.testing.assert_array_equal(part[0]["ids"], PADDED[::7][:50])
    for buffer in (0, 300):
        epoch = examples.shuffled_batches(64, shuffle_buffer_rows=buffer, seed=1, rows=ROWS)(0)
        found = list(epoch.as_numpy_iterator())
        order = np.concatenate([y[:, 0] for _, y in found])
        assert sorted(order) == list(range(ROWS))
        np.testing.assert_array_equal(np.concatenate([x["ids"] for x, _ in found]), PADDED[order])


def test_batches_are_cut_to_the_smallest_length_that_holds_their_rows(examples):
    assert lengths_by_level(LONGEST) == [100, 50, 25]
    assert [lengths_by_level(n) for n in (1, 31, 32, 257)] == [
        [1], [31], [32, 16], [257, 129, 65, 33, 17],
    ]  # fmt: skip
    cut = dataclasses.replace(examples, trims=True)
    for shares in (None, Replicas(0, 1, 2)):
        batches = dataclasses.replace(cut, replicas=shares).batches(50)
        seen = 0
        for element in batches.as_numpy_iterator():
            features, labels = element if shares is None else element.batch
            rows = labels[:, 0]
            longest = max(len(LISTS[row]) for row in rows)
            expected = min(n for n in lengths_by_level(LONGEST) if n >= longest)
            np.testing.assert_array_equal(features["ids"], PADDED[rows, :expected])
            seen += len(rows)
        assert seen == (ROWS if shares is None else ROWS // 2)


def test_a_row_of_too_many_ids_is_named(tmp_path):
    columns = {
        "ids": pa.array([[1], [2] * 101], pa.large_list(pa.int64())),
        "y": np.arange(2)[:, None],
    }
    file = parquet_files.write_parquet(tmp_path / "rows.parquet", columns)
    with (
        pytest.raises(ValueError, match=r"row 1, column 'ids': 101 values"),
        translate_tf_errors(),
    ):
        list(Examples((file,), SPEC, "y").batches(2))
