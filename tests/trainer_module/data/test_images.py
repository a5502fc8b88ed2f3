"""Pictures in files of either format, pixels or encoded, against the arrays that were written."""

from __future__ import annotations

import dataclasses

import numpy as np
import parquet_files
import pytest
import tensorflow as tf
from tfrecords import serialized_rows

from shared_core.feature_layout import ImageFeature
from trainer_module.data.input_pipeline import Examples, summarise
from trainer_module.data.row_source import block_rows
from trainer_module.devices.replicas import Replicas

ROWS, SHAPE = 150, (40, 32, 3)
PIXELS = np.random.default_rng(0).integers(0, 256, [ROWS, *SHAPE], np.uint8)
PIXELS[:, 0, 0, 0] = np.arange(ROWS)  # the number of the row
STORED = {
    "pixels": [each.tobytes() for each in PIXELS],
    "encoded": [tf.io.encode_png(each).numpy() for each in PIXELS],
}


@pytest.fixture(scope="module", params=["parquet", "tfrecord"])
def examples(request, tmp_path_factory):
    """Two features of the same pictures."""
    path = tmp_path_factory.mktemp("images") / f"rows.{request.param}"
    columns = {**STORED, "y": [number % 2 for number in range(ROWS)]}
    if request.param == "parquet":
        table = {name: np.array(values)[:, None] for name, values in columns.items() if name == "y"}
        table |= {name: np.array(values, object)[:, None] for name, values in STORED.items()}
        parquet_files.write_parquet(path, table, group_rows=60)
    else:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in serialized_rows(columns):
                writer.write(row)
    images = tuple(
        ImageFeature(
            **dict.fromkeys(("name", "source", "group"), name),
            **dict(zip(("height", "width", "channels"), SHAPE, strict=True)),
            store=name,
        )
        for name in STORED
    )
    spec = {name: tf.io.FixedLenFeature(SHAPE, tf.uint8) for name in STORED}
    spec["y"] = tf.io.FixedLenFeature([1], tf.int64)
    return Examples((str(path),), spec, "y", images=images)


def pictures(batches):
    """The rows of batches, which both features have alike."""
    found = []
    for features, *_ in batches:
        assert features["pixels"].shape[1:] == SHAPE
        np.testing.assert_array_equal(features["pixels"], features["encoded"])
        found.append(features["pixels"])
    return np.concatenate(found)


def test_rows_are_read_in_order_and_in_shares(examples):
    np.testing.assert_array_equal(pictures(examples.batches(64).as_numpy_iterator()), PIXELS)
    np.testing.assert_array_equal(pictures(examples.every(7, 64).as_numpy_iterator()), PIXELS[::7])
    worker = dataclasses.replace(examples, replicas=Replicas(1, 2, 2))
    (share, *_) = worker.batches(64).as_numpy_iterator()
    np.testing.assert_array_equal(share.batch[0]["pixels"], PIXELS[32:64])


def test_an_epoch_has_each_picture_once(examples):
    """Shuffled one by one, before they are decoded."""
    epochs = examples.shuffled_batches(64, shuffle_buffer_rows=100, seed=3, rows=ROWS)
    drawn = pictures(epochs(1).as_numpy_iterator())
    order = drawn[:, 0, 0, 0]
    assert sorted(order) == list(range(ROWS)) != order.tolist()
    np.testing.assert_array_equal(drawn, PIXELS[order])


def test_blocks_are_as_large_as_their_pixels(examples):
    assert block_rows(examples.feature_spec) == (4 << 20) // 7688
    assert examples._source.most_rows == (4 << 20) // 7688 // 8
    assert summarise(examples).rows == ROWS  # reads no picture
