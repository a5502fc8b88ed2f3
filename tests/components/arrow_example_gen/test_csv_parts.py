"""Large CSV files are read in parts, and the rows and splits are those of one pass."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from components import CsvOptions
from components.arrow_example_gen import csv_chunks, csv_table
from components.arrow_example_gen.csv_table import CsvTable, open_table
from components.arrow_example_gen.executor import TableSource
from components.arrow_example_gen.splitting import SplitRows, Splitting, find_cuts, splits_of

LINES = [f"{i % 7},é {i % 5}\n" for i in range(200)]  # equal rows, so that their places count
BY_ROW, SHARES = Splitting(by="row"), (2, 1)
PLAIN = "number,text\n" + "".join(LINES)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(csv_table, "BLOCK_BYTES", 200)
    monkeypatch.setattr(csv_table, "_BYTES_A_COLUMN", 1)
    monkeypatch.setattr(csv_chunks, "PART_BYTES", 300)
    monkeypatch.setattr(csv_chunks, "_PIECE_BYTES", 100)


def written(folder: Path, content: bytes, name: str = "rows.csv") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def rows_of(table: CsvTable, file: str, **part: Any) -> list[tuple[str, ...]]:
    blocks = table.blocks(file, **part)
    return [row for block in blocks for row in zip(*block.to_pydict().values(), strict=True)]


@pytest.mark.parametrize(
    ("text", "encoding", "options"),
    [
        (PLAIN, "utf-8", {}),
        (PLAIN, "utf-8-sig", {}),
        (PLAIN.replace("\n", "\r\n"), "utf-8", {}),
        (PLAIN.replace("\n", "\r"), "utf-8", {}),
        ("\n" * 1_000 + PLAIN.replace("\n", "\n\n"), "utf-8", {}),
        (PLAIN.removesuffix("\n"), "utf-8", {}),
        (PLAIN, "cp1252", {"encoding": "cp1252"}),
        ('"a","b"\n' + "".join(f'{i},"é\n{i}, """\n' for i in range(200)), "utf-8-sig", {}),
        ("# a comment\n" * 100 + PLAIN, "utf-8", {"comment": "#"}),
        ("".join(LINES), "utf-8", {"header": False}),
    ],
    ids=[
        *("lf", "mark", "crlf", "cr", "blank-lines", "no-last-end"),
        *("cp1252", "quoted-line-ends", "comments", "no-header"),
    ],
)
def test_parts_are_whole_records(tmp_path, text, encoding, options):
    """Reference: the file read from its beginning."""
    file = written(tmp_path, text.encode(encoding))
    table = open_table([file], CsvOptions.model_validate(options))
    parts = [rows_of(table, file, part=part) for _, part, _ in table.parts(file)]
    assert len(parts) > 3
    assert all(parts)
    assert [row for part in parts for row in part] == rows_of(table, file)
    assert sum(map(len, parts)) == 200


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (PLAIN.encode("utf-16"), None),
        (PLAIN.encode("shift_jis", "replace"), "shift_jis"),  # its second bytes may be ASCII
        (gzip.compress(PLAIN.encode()), None),
        (PLAIN.replace("é", 'a "quote').encode(), None),  # not where a cell begins
        (b"number,text\n", None),
    ],
    ids=["utf-16", "shift-jis", "gzip", "quotes-within-cells", "header-only"],
)
def test_files_that_one_worker_reads(tmp_path, content, encoding):
    file = written(tmp_path, content)
    table = open_table([file], CsvOptions(encoding=encoding))
    assert [part for _, part, _ in table.parts(file)] == [(0, None)]


def test_splits_do_not_depend_on_workers(tmp_path, monkeypatch):
    """Equal rows are split by their places. Reference: one pass over the file without Beam."""
    file = written(tmp_path, PLAIN.encode())
    monkeypatch.setattr("components.arrow_example_gen.splitting.EXACT", 100)
    expected = _split_in_one_pass(file)
    assert 0 < len(expected[1]) < len(expected[0])
    for workers in (1, 2, 4):
        assert _split_on_workers(file, tmp_path / f"{workers}", workers) == expected
        assert (tmp_path / f"{workers}" / f"0-00000-of-0000{workers}").is_file()


def _split_in_one_pass(file: str) -> list[list[str]]:
    table = open_table([file], CsvOptions())
    agreed = table.agree([(part, table.examine(part)) for part in table.parts(file, whole=True)])
    batches = [batch for part in agreed[1] for _, batch in table.read(part, agreed)]
    batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    rows = (np.arange(batch.num_rows), batch)
    splits = splits_of(rows, BY_ROW, SHARES, find_cuts([rows], BY_ROW, SHARES))
    lines = np.array([str(row) for row in batch.to_pylist()])
    return [sorted(lines[splits == number]) for number in range(len(SHARES))]


def _split_on_workers(file: str, folder: Path, workers: int) -> list[list[str]]:
    """Returns the sorted rows of each split, of which each worker writes a file."""
    options = PipelineOptions(
        runner="FnApiRunner",
        direct_running_mode="multi_threading",
        direct_num_workers=workers,
    )
    folder.mkdir()
    with beam.Pipeline(options=options) as pipeline:
        source = TableSource(open_table([file], CsvOptions()))
        rows = source.rows(pipeline | source.types())
        splits: Any = pipeline | SplitRows(rows, BY_ROW, SHARES)
        for number, split in enumerate(splits):
            texts = split | f"Texts{number}" >> beam.FlatMap(
                lambda rows: map(str, rows.to_pylist())
            )
            _ = texts | f"Write{number}" >> beam.io.WriteToText(str(folder / str(number)))
    return [
        sorted(
            line for each in folder.glob(f"{number}-*") for line in each.read_text().splitlines()
        )
        for number in range(len(SHARES))
    ]
