"""Global batches from transformed files, and their shuffles."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transform import serialized

from shared_core.feature_layout import MISSING_INT
from trainer_module.data.input_pipeline import Examples, _shuffle_blocks, expand, summarise
from trainer_module.data.row_source import TFRecordRows


def blocks_of(sizes):
    """Blocks of these sizes of rows with three features: a number from 0, its half, its text."""
    ends = tf.constant(list(itertools.accumulate(sizes)), tf.int64)

    def block(end, size):
        number = tf.range(end - size, end)
        halves = tf.cast(number, tf.float64) / 2
        return {"number": number[:, tf.newaxis], "half": halves}, tf.strings.as_string(number)

    sizes = tf.constant(sizes, tf.int64)
    options = tf.data.Options()
    options.autotune.enabled = False  # the end of an iterator would wait for its next turn
    return tf.data.Dataset.from_tensor_slices((ends, sizes)).map(block).with_options(options)


def drawn(sizes, held_rows, seed=1):
    """The numbers, block by block."""
    shuffled = _shuffle_blocks(
        blocks_of(sizes), held_rows=held_rows, seed=tf.constant(seed, tf.int64)
    )
    found = []
    for features, texts in shuffled.as_numpy_iterator():
        numbers = features["number"][:, 0]
        np.testing.assert_array_equal(numbers / 2, features["half"])
        np.testing.assert_array_equal(numbers.astype(str), texts.astype(str))
        found.append(numbers.tolist())
    return found


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    held_rows=st.integers(0, 20),
    seed=st.integers(0, 2**31 - 1),
)
def test_every_row_comes_once(sizes, held_rows, seed):
    found = drawn(sizes, held_rows, seed)
    assert sorted(itertools.chain(*found)) == list(range(sum(sizes)))
    # No row leaves before it arrives, nor before `held_rows` others are there to draw from.
    came = list(itertools.accumulate(sizes))
    gone = itertools.accumulate(map(len, found))
    assert list(gone) == [max(0, n - held_rows) for n in came] + [came[-1]]
    assert all(max(block, default=0) < n for block, n in zip(found, came, strict=False))


@pytest.mark.parametrize(("sizes", "held_rows"), [([4], 0), ([2, 2], 2), ([1, 1, 1, 1], 3)])
def test_each_order_is_as_likely_as_another(sizes, held_rows):
    """24 orders, 600 seeds. Reference: chi-square of 23 degrees, below 60 in all but 4e-5."""
    seeds = tf.data.Dataset.range(600)
    shuffled = seeds.flat_map(
        lambda seed: _shuffle_blocks(blocks_of(sizes), held_rows=held_rows, seed=seed)
    )
    numbers = np.concatenate([row["number"][:, 0] for row, _ in shuffled.as_numpy_iterator()])
    counts = collections.Counter(map(tuple, numbers.reshape(600, 4).tolist()))
    assert len(counts) == math.factorial(4)
    assert sum((n - 25) ** 2 / 25 for n in counts.values()) < 60


@pytest.fixture
def examples(transformed):
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(transformed.graph).transformed_feature_spec()
    return Examples(expand([transformed.train], what="train"), spec, "generous")


def fares(dataset):
    return [batch[0]["fare_scaled"].ravel().tolist() for batch in dataset.as_numpy_iterator()]


def test_every_row_comes_once_and_the_last_batch_is_short(examples):
    shuffled = examples.shuffled_batches(64, shuffle_buffer_rows=1000, seed=3, rows=600)(0)
    sizes = [len(batch) for batch in fares(shuffled)]
    assert sizes == [64] * 9 + [24]
    in_order = list(itertools.chain(*fares(examples.batches(64))))
    drawn = list(itertools.chain(*fares(shuffled)))
    assert sorted(drawn) == sorted(in_order)
    assert drawn != in_order


def test_an_epoch_is_on_the_cpu_whatever_the_device(examples):
    """An iterator is where its dataset is; on a GPU, reading several files is an internal error."""
    with tf.device("CPU:1"):
        epoch = examples.shuffled_batches(64, shuffle_buffer_rows=100, seed=3, rows=600)(0)
        assert iter(epoch)._iterator_resource.device.endswith("CPU:0")


@pytest.fixture
def many_files(tmp_path):
    """Eleven files of 0 to 2,000 rows, each row's only feature its number, and their numbers."""
    files, numbers, row = [], [], 0
    for i, size in enumerate([2000, 0, 129, 1, 1500, 128, 127, 256, 1024, 2, 77]):
        files.append(str(tmp_path / f"rows-{i:02d}.gz"))
        numbers.append(list(range(row, row + size)))
        with tf.io.TFRecordWriter(files[-1], "GZIP") as writer:
            for number in numbers[-1]:
                writer.write(serialized({"row": [number], "y": [number]}))
        row += size
    spec = {name: tf.io.FixedLenFeature([1], tf.int64) for name in ("row", "y")}
    return Examples(tuple(files), spec, "y"), numbers


def rows(dataset):
    return list(itertools.chain(*(b[0]["row"].ravel() for b in dataset.as_numpy_iterator())))


def test_several_files_are_read_in_blocks_in_turn_each_time_alike(many_files):
    examples, numbers = many_files
    drawn = rows(examples.batches(64))
    assert sorted(drawn) == list(range(5244))
    assert rows(examples.batches(64)) == drawn
    assert drawn[:1024] == numbers[0][:1024]
    assert drawn[1024] not in numbers[0]
    for file in numbers:
        assert [row for row in drawn if row in file] == file


@pytest.mark.parametrize("buffer_rows", [10_000, 40_000])
def test_several_files_are_shuffled_as_a_whole_and_an_epoch_can_be_continued(
    many_files, buffer_rows
):
    examples, numbers = many_files
    epochs = examples.shuffled_batches(64, shuffle_buffer_rows=buffer_rows, seed=3, rows=5244)
    drawn = rows(epochs(1))
    assert sorted(drawn) == list(range(sum(map(len, numbers))))
    assert rows(epochs(1).skip(7)) == drawn[7 * 64 :]
    # Rows of a block do not stay together: of 5,243 neighbours about 2 are neighbours by chance.
    assert sum(b - a == 1 for a, b in itertools.pairwise(drawn)) < 20


def test_sizes_by_step_cut_the_same_rows(many_files):
    """Reference: the rows of the epoch with one size, cut by hand."""
    examples, _ = many_files
    sizes = {0: 700, 3: 100, 40: 2000}
    for buffer_rows in (0, 10_000):
        options = {"shuffle_buffer_rows": buffer_rows, "seed": 3, "rows": 5244}
        epochs = examples.shuffled_batches(sizes, **options)
        in_order = rows(examples.shuffled_batches(64, **options)(1))
        for first_step, wanted in (
            (0, [700] * 3 + [100] * 31 + [44]),
            (35, [100] * 5 + [2000, 2000, 744]),
            (40, [2000, 2000, 1244]),
        ):
            epoch = epochs.starting_at(1, first_step)
            assert [len(b[1]) for b in epoch.as_numpy_iterator()] == wanted
            assert int(epoch.cardinality()) == len(wanted)
            assert rows(epoch) == in_order
            assert rows(epoch.skip(2)) == in_order[sum(wanted[:2]) :]


def test_block_shuffle_draws_from_the_configured_number_of_rows(many_files, monkeypatch):
    """Half of them are held back, so that rows may stay longer than any block."""
    examples, numbers = many_files
    monkeypatch.setattr(TFRecordRows, "block_shuffle_rows", 1024)
    one_file = dataclasses.replace(examples, files=examples.files[:1])
    drawn = rows(one_file.shuffled_batches(64, shuffle_buffer_rows=1024, seed=3, rows=2000)(0))
    assert sorted(drawn) == numbers[0]
    late = [place - row for place, row in enumerate(drawn)]
    assert min(late) > -1024
    assert max(late) > 1024


def test_summary_of_rows_labels_and_ids(examples):
    summary = summarise(examples, id_features=["hour_id"])
    assert (summary.rows, summary.label_min, summary.label_max) == (600, 0.0, 1.0)
    assert summary.label_is_whole
    assert summary.id_sizes == {"hour_id": (0, 24)}


@pytest.mark.parametrize(("weight", "message"), [(-1.0, "holds -1.0"), (np.inf, "holds inf")])
def test_invalid_weights_are_rejected(tmp_path, weight, message):
    path = str(tmp_path / "rows")
    with tf.io.TFRecordWriter(path) as writer:
        for value in (0.0, 1.0):
            writer.write(serialized({"y": [value], "w": [weight]}))
    spec = {name: tf.io.FixedLenFeature([1], tf.float32) for name in ("y", "w")}
    with pytest.raises(ValueError, match=f"^weight='w' {message}"):
        summarise(Examples((path,), spec, "y", "w"))


def test_whole_labels_of_a_regression_are_numbers_with_every_digit(tmp_path):
    """float64 for what is fitted on them, float32 for a model without a scale; NaN: missing."""
    path, labels = str(tmp_path / "rows"), [1_700_000_001, MISSING_INT]
    with tf.io.TFRecordWriter(path) as writer:
        for value in labels:
            writer.write(serialized({"y": [value]}))
    spec = {"y": tf.io.FixedLenFeature([1], tf.int64)}
    examples = Examples((path,), spec, "y", label_dtype=tf.float64)
    for each, dtype in ((examples, np.float64), (examples.for_training(), np.float32)):
        ((_, found),) = each.batches(2).as_numpy_iterator()
        assert found.dtype == dtype
        np.testing.assert_array_equal(found[:, 0], np.array([labels[0], np.nan], dtype))
    with pytest.raises(ValueError, match="label='y' is NaN"):
        summarise(examples)
    ids = dataclasses.replace(examples, label_dtype=None)  # classes
    assert next(ids.batches(2).as_numpy_iterator())[1].dtype == np.int64
