"""Rows of Parquet files against the arrays that were written, and against TFRecord files."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools

import numpy as np
import parquet_files
import pyarrow as pa
import pytest
import tensorflow as tf

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.data.input_pipeline import Examples, expand, summarise
from trainer_module.devices.replicas import Replicas

ROWS = 6000
SPEC = {
    "row": tf.io.FixedLenFeature([1], tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.float32),
    "matrix": tf.io.FixedLenFeature([2, 2], tf.float32),
    "number": tf.io.FixedLenFeature([], tf.int64),
    "small": tf.io.FixedLenFeature([1], tf.float32),
    "flag": tf.io.FixedLenFeature([], tf.float32),
    "bytes": tf.io.FixedLenFeature([1], tf.string),
    "text": tf.io.FixedLenFeature([], tf.string),
    "y": tf.io.FixedLenFeature([1], tf.int64),
}


def columns(first, rows):
    """Columns of all types that are read, each with the numbers of the rows."""
    row = np.arange(first, first + rows)
    pairs = np.stack([row, -row], axis=1).astype("float32")
    names = [str(number).encode() for number in row]
    return {
        "unused": pa.array(row),
        "row": row[:, None],
        "pair": pa.FixedSizeListArray.from_arrays(pa.array(pairs.ravel()), 2),
        "matrix": np.concatenate([pairs, pairs], axis=1),
        "number": pa.array(row.astype("int32")),
        "small": pa.array(row.astype("int16")),
        "flag": pa.array(row % 2 == 0),
        "bytes": np.array(names, dtype=object)[:, None],
        "text": pa.array([name.decode() for name in names]),
        "y": (row % 3)[:, None],
    }


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Three files with row groups of 1,500, 40 and 1,000 rows; the second file has none."""
    folder = tmp_path_factory.mktemp("parquet")
    files, first = [], 0
    for size, group_rows in ((3500, 1500), (0, 1000), (500, 40), (2000, 1000)):
        path = folder / f"examples-{len(files)}.parquet"
        files.append(parquet_files.write_parquet(path, columns(first, size), group_rows=group_rows))
        first += size
    return Examples(tuple(files), SPEC, "y")


def rows(dataset):
    return list(itertools.chain(*(b[0]["row"].ravel() for b in dataset.as_numpy_iterator())))


def test_each_type_is_read_without_a_change(examples):
    seen = 0
    for features, labels in examples.batches(700).as_numpy_iterator():
        row = np.arange(seen, seen + len(labels))
        expected = np.stack([row, -row], axis=1)
        np.testing.assert_array_equal(features["row"], row[:, None])
        np.testing.assert_array_equal(features["pair"], expected)
        np.testing.assert_array_equal(features["matrix"], np.stack([expected] * 2, axis=1))
        np.testing.assert_array_equal(features["number"], row)
        np.testing.assert_array_equal(features["small"], row[:, None])
        np.testing.assert_array_equal(features["flag"], row % 2 == 0)
        np.testing.assert_array_equal(features["bytes"][:, 0].astype(int), row)
        np.testing.assert_array_equal(features["text"].astype(int), row)
        np.testing.assert_array_equal(labels, (row % 3)[:, None])
        for name, values in features.items():
            assert values.dtype == SPEC[name].dtype.as_numpy_dtype, name
        seen += len(labels)
    assert seen == ROWS


def test_batches_equal_those_of_the_same_tfrecords(transformed, tmp_path):
    """One file with several row groups, in order, bit for bit, with a weight."""
    import tensorflow_transform as tft

    spec = tft.TFTransformOutput(transformed.graph).transformed_feature_spec()
    as_parquet = parquet_files.as_parquet(transformed, tmp_path)
    records, parquet = (
        Examples(expand([each], what="train")[:1], spec, "generous", "fare_scaled")
        for each in (transformed.train, as_parquet.train)
    )
    for nth in (1, 7):
        batches = zip(records.every(nth, 32), parquet.every(nth, 32), strict=True)
        for expected, found in batches:
            tf.nest.map_structure(np.testing.assert_array_equal, expected, found)
    few = [dataclasses.replace(each, weight=None) for each in (records, parquet)]
    assert repr(summarise(few[0], id_features=["hour_id"])) == repr(
        summarise(few[1], id_features=["hour_id"])
    )


def test_every_nth_row(examples):
    for every in [2, 7, 2000, 7000]:
        batches = list(examples.every(every, 64).as_numpy_iterator())
        assert [row for b in batches for row in b[0]["row"].ravel()] == list(range(0, ROWS, every))
        assert {len(b[1]) for b in batches[:-1]} <= {64}


def test_an_epoch_is_the_same_again_and_can_be_continued(examples):
    options = {"shuffle_buffer_rows": 5000, "seed": 3, "rows": ROWS}
    epochs = examples.narrowed(["row"]).shuffled_batches(64, **options)
    drawn = rows(epochs(1))
    assert sorted(drawn) == list(range(ROWS))
    assert rows(epochs(2)) != drawn == rows(epochs(1))
    assert rows(epochs(1).skip(7)) == drawn[7 * 64 :]
    # Rows of a block do not stay together: of 5,999 neighbours about 1 are neighbours by chance.
    assert sum(b - a == 1 for a, b in itertools.pairwise(drawn)) < 20


def test_workers_share_the_same_batches(examples):
    """Two and three workers with four replicas; sizes by step, without a shuffle and with one."""
    narrow = examples.narrowed(["row"])
    for buffer_rows in (0, 5000):
        options = {"shuffle_buffer_rows": buffer_rows, "seed": 3, "rows": ROWS}
        sizes = {0: 1000, 2: 301}
        drawn = rows(narrow.shuffled_batches(sizes, **options)(1))
        for cuts in ((0, 2, 4), (0, 1, 3, 4)):
            shares = [
                dataclasses.replace(narrow, replicas=Replicas(*each, 4)).shuffled_batches(
                    sizes, **options
                )(1)
                for each in itertools.pairwise(cuts)
            ]
            found = []
            for parts in zip(*shares, strict=True):
                found += [row for part in parts for row in part.batch[0]["row"].numpy().ravel()]
            assert found == drawn


def test_an_epoch_outlives_the_function_that_returned_it(examples):
    """TensorFlow keeps weak references to the functions of a graph."""
    options = {"shuffle_buffer_rows": 10, "seed": 3, "rows": ROWS}
    iterator = iter(examples.shuffled_batches(100, **options)(0))
    gc.collect()
    assert sum(len(labels) for _, labels in iterator) == ROWS


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    """The first reader stops within a row group, where the next one could continue."""
    spec = {name: SPEC[name] for name in ("row", "y")}
    for first in (0, 200_000):
        row = np.arange(first, first + 100_000)[:, None]
        path = parquet_files.write_parquet(
            tmp_path / "a.parquet", {"row": row, "y": row}, group_rows=100_000
        )
        dataset = Examples((path,), spec, "y").batches(500)
        assert next(iter(dataset))[0]["row"][0] == first
        assert rows(dataset) == row.ravel().tolist()


def test_memory_does_not_grow_with_row_groups(tmp_path):
    """A shuffle reads 20 of 100 row groups in turn; 124 MB were held when all stayed open."""
    spec = {name: SPEC[name] for name in ("row", "y")}
    row = np.arange(100 * 4000)[:, None]
    path = parquet_files.write_parquet(
        tmp_path / "rows.parquet", {"row": row, "y": row}, group_rows=4000
    )
    options = {"shuffle_buffer_rows": 5000, "seed": 1, "rows": len(row)}
    batches = Examples((path,), spec, "y").shuffled_batches(5000, **options)
    del row
    gc.collect()
    before, most = pa.total_allocated_bytes(), 0
    for _ in batches(0):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < 20 << 20


def test_remote_files(examples):
    """TensorFlow's file system in memory stands for those of clouds."""
    paths = []
    for number, file in enumerate(examples.files):
        paths.append(f"ram://examples/{number}.parquet")
        tf.io.gfile.copy(file, paths[-1])
    remote = dataclasses.replace(examples.narrowed(["row"]), files=tuple(paths))
    assert rows(remote.batches(1000)) == list(range(ROWS))


def lists(*first, kind="float32"):
    """3,000 lists, `[1.0, 2.0]` but for those given."""
    return pa.array([*first, *PAIRS[len(first) :]], pa.large_list(getattr(pa, kind)()))


PAIRS, Y = [[1.0, 2.0]] * 3000, pa.array([0, 1] * 1500)
LONGER = [1.0, 2.0, 3.0]
NO_STATISTICS = {"write_statistics": False}


def test_columns_that_are_not_the_features_are_rejected(tmp_path):
    last, null, no_label = "row group 2, row 999, ", "a null value", pa.array([0, 1, None] * 1000)
    for x, y, options, message in [
        (lists(*PAIRS[1:], [1.0]), Y, {}, f"{last}column 'x': 1 values"),
        (
            lists(*PAIRS[:2000], [1.0], LONGER),
            *(Y, {}, r"row group 2, row 0, column 'x': 1 values.*\[2\]"),
        ),
        (lists(*PAIRS[1:], [1.0, None]), Y, NO_STATISTICS, f"{last}column 'x': {null}"),
        (lists(*PAIRS[2:], None, LONGER), Y, NO_STATISTICS, f"2, row 998, column 'x': {null}"),
        (lists(), no_label, NO_STATISTICS, f"row group 0, row 2, column 'y': {null}"),
        (lists(kind="float64"), Y, {}, r"column 'x' is large_list<\w+: double>.*float32"),
        (lists(*[[1, 2]] * 3000, kind="int32"), Y, {}, "column 'x'.*int32.*float32"),
        (lists(), Y.cast(pa.uint64()), {}, "column 'y' is uint64.*int64"),
        (lists(), Y.cast(pa.string()), {}, "column 'y' is string.*int64"),
        (pa.array([1.0] * 3000, pa.float32()), Y, {}, r"column 'x' is float.*\[2\]: write lists"),
        (pa.array([[1.0] * 3] * 3000, pa.list_(pa.float32(), 3)), Y, {}, r"\[3\].*shape \[2\]"),
    ]:
        path = parquet_files.write_parquet(tmp_path / "a.parquet", {"x": x, "y": y}, **options)
        spec = {
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "y": tf.io.FixedLenFeature([], tf.int64),
        }
        with pytest.raises(ValueError, match=rf"a\.parquet.*{message}"), translate_tf_errors():
            list(Examples((path,), spec, "y").batches(1000))


def test_damaged_files_are_named(tmp_path):
    """A page that is no longer snappy; half a file; an empty one; text; an absent one."""
    row = np.random.default_rng(0).integers(0, 9, (30_000, 1))
    whole = parquet_files.write_parquet(
        tmp_path / "whole.parquet", {"row": row, "y": row}, group_rows=10_000, use_dictionary=False
    )
    data = (tmp_path / "whole.parquet").read_bytes()
    middle = len(data) // 2
    for damaged, message in (
        (data[:middle] + bytes([255]) * 3000 + data[middle + 3000 :], r"row group 1.* is damaged"),
        (data[:middle], "not a complete Parquet file"),
        (b"", "not a complete Parquet file"),
        (b"PAR1 and more", "not a complete Parquet file"),
        (None, "cannot be read"),
    ):
        path = tmp_path / "damaged.parquet"
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        found = Examples((whole, str(path)), {n: SPEC[n] for n in ("row", "y")}, "y")
        with (
            pytest.raises(ValueError, match=rf"damaged\.parquet.*{message}"),
            translate_tf_errors(),
        ):
            list(found.batches(1000))


def test_a_parquet_file_with_another_name_is_rejected(tmp_path):
    path = parquet_files.write_parquet(tmp_path / "rows", {"y": np.zeros((9, 1))})
    with pytest.raises(ValueError, match=r"rows is a Parquet file: end its name with \.parquet"):
        expand([path], what="the train split")
    with contextlib.suppress(FileNotFoundError):
        tf.io.gfile.rename(path, f"{path}.parquet")
    assert expand([f"{path}*"], what="the train split") == (f"{path}.parquet",)


def test_a_missing_column_is_named_with_those_that_are_there(examples):
    missing = dataclasses.replace(
        examples, feature_spec={**SPEC, "other": tf.io.FixedLenFeature([], tf.int64)}
    )
    with pytest.raises(ValueError, match=r"column 'other' is not in the file.*row, pair"):
        missing.batches(10)


def test_files_of_two_formats_are_rejected(examples):
    mixed = dataclasses.replace(examples, files=(*examples.files, "rows-1.gz"))
    with pytest.raises(ValueError, match=r"examples-0\.parquet is a Parquet file and rows-1\.gz"):
        mixed.batches(10)
