"""Damaged Parquet examples are named with their row group, whoever failed to read them."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.arrow_example_gen.damage import damage_named, find_damage


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Two files of two row groups each."""
    random = np.random.default_rng(0)
    for split in ("train", "eval"):
        folder = tmp_path / f"Split-{split}"
        folder.mkdir()
        table = pa.table({"x": random.normal(size=2000)})
        pq.write_table(table, folder / "a.parquet", row_group_size=1000, compression="zstd")
    return tmp_path


def read(examples: Path) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | beam.io.ReadFromParquetBatched(f"{examples}/Split-*/*.parquet")


def test_whole_files_have_no_damage(examples: Path) -> None:
    assert find_damage(str(examples)) is None
    with damage_named(str(examples), beam_args=()):
        read(examples)


def test_the_row_group_is_named(examples: Path) -> None:
    file = examples / "Split-train" / "a.parquet"
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    damaged = bytearray(file.read_bytes())
    place = column.dictionary_page_offset or column.data_page_offset
    damaged[place : place + column.total_compressed_size] = bytes(column.total_compressed_size)
    file.write_bytes(damaged)
    with (
        pytest.raises(ValueError, match=rf"^{file}, row group 1: .*delete {examples} and run"),
        damage_named(str(examples), beam_args=()),
    ):
        read(examples)


@pytest.mark.parametrize("rows", [slice(0, -100), slice(0, 0)], ids=["truncated", "empty"])
def test_the_file_is_named(examples: Path, rows: slice) -> None:
    file = examples / "Split-eval" / "a.parquet"
    file.write_bytes(file.read_bytes()[rows])
    with (
        pytest.raises(ValueError, match=rf"^{file}: .*damaged"),
        damage_named(str(examples), beam_args=()),
    ):
        read(examples)


def test_other_errors_stay_as_they_are(examples: Path) -> None:
    with pytest.raises(KeyError, match="'y'"), damage_named(str(examples), beam_args=()):
        {}["y"]
