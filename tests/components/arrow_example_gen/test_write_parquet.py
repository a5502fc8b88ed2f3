"""The files of a split: row groups of a bounded size, and columns where there is no row."""

from __future__ import annotations

import logging
import os
from itertools import accumulate, pairwise

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from components.arrow_example_gen import write_parquet
from components.arrow_example_gen.write_parquet import WriteParquet
from trainer_module.common import progress

TYPE = pa.large_list(pa.int64())


def batch(start, end):
    lists = pa.array([[i] * (i % 3) for i in range(start, end)], TYPE)
    return pa.RecordBatch.from_arrays([lists], ["n"])


def written(folder, batches, **options):
    """Returns the row groups of the one file that one worker writes."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | beam.Create(batches, reshuffle=False)
        _ = read | WriteParquet(str(folder / "data_parquet"), **options)
    (name,) = os.listdir(folder)
    assert name == "data_parquet-00000-of-00001.parquet"
    file = pq.ParquetFile(folder / name)
    assert file.schema_arrow.field("n").type == TYPE
    return [file.read_row_group(i)["n"].to_pylist() for i in range(file.num_row_groups)]


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [({"_GROUP_ROWS": 25}, [20, 20, 20]), ({"_GROUP_BYTES": 1}, [20, 10, 10, 20]), ({}, [60])],
)
def test_batches_are_joined_up_to_the_size_of_a_row_group(tmp_path, monkeypatch, limits, sizes):
    edges = [0, 20, 20, 30, 40, 60]
    for name, value in limits.items():
        monkeypatch.setattr(write_parquet, name, value)
    groups = written(tmp_path, [batch(*ends) for ends in pairwise(edges)], shuffles=True)
    assert list(map(len, groups)) == sizes
    ends = [0, *accumulate(sizes)]
    for group, (start, end) in zip(groups, pairwise(ends), strict=True):
        rows = batch(start, end)["n"].to_pylist()
        assert sorted(group) == sorted(rows)
        assert group != rows, "a row group has its rows in random order"


def test_progress_counts_the_rows(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="absl"):
        written(tmp_path, [batch(0, 20), batch(20, 50)])
    records = [progress.progress_of(line) for line in caplog.records]
    assert [each.rows for each in records if each] == [20, 30]


def test_a_split_without_a_row_has_the_columns(tmp_path):
    assert written(tmp_path / "a", [batch(0, 0), batch(0, 0)]) == []
    assert written(tmp_path / "b", [], schema=pa.schema({"n": TYPE})) == []


def test_nothing_to_write_without_a_schema_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"data_parquet\*: no rows were read. Is the input empty"):
        written(tmp_path, [])


def test_files_of_an_attempt_that_was_cut_off_are_replaced(tmp_path):
    for name in ("data_parquet-00000-of-00002.parquet", "data_parquet-00001-of-00002.parquet"):
        (tmp_path / name).write_bytes(b"half a file")
    ((row,),) = written(tmp_path, [batch(1, 2)])
    assert row == [1]


def test_bundles_become_files_of_all_rows(tmp_path):
    options = PipelineOptions(direct_num_workers=2, direct_running_mode="multi_threading")
    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        starts = pipeline | beam.Create(range(0, 80, 20)) | beam.Reshuffle()
        _ = starts | beam.Map(lambda i: batch(i, i + 20)) | WriteParquet(str(tmp_path / "rows"))
    found = pq.ParquetDataset(tmp_path).read()["n"].to_pylist()
    assert sorted(found) == sorted(batch(0, 80)["n"].to_pylist())
    assert all(name.startswith("rows-") for name in os.listdir(tmp_path))
