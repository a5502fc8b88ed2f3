"""Hashes and splits of rows as they were computed from the first version on.

Another digest puts the rows of every user into other splits: do not update one.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from components import ArrowExampleGen, CsvOptions
from components.arrow_example_gen import csv_table, csv_text
from components.arrow_example_gen.executor import ReadRows, ReadTypes, open_input, with_values
from components.arrow_example_gen.row_hash import row_hashes
from components.arrow_example_gen.splitting import Splitting, find_cuts, splits_of

N = range(1_000)
CSV = {
    "numbers": (
        {},
        "id,few,real,flag,missing,wide\n"
        + "".join(
            f"{i},{i % 7},{i / 8 - 3},{i % 2 == 0},{'' if i % 3 else i},{2**53 + i}\n" for i in N
        ),
    ),
    "quotes": (
        {"missing": ["", "n/a"]},
        '"a, b";"t";"x"\r\n'
        + "".join(f'"{i}";"{i % 5} ""q""\r\n;é";{"n/a" if i % 4 else i}\r\n' for i in N),
    ),
    "commas": (
        {"decimal": ","},
        "x\tprice\twhen\n"
        + "".join(
            f"{i},5\t{i // 9 + 1}00{i % 9}\t2024-05-{i % 28 + 1:02}T0{i % 9}:00+02:00\n" for i in N
        ),
    ),
    "codes": (
        {"text": ["zip"], "encoding": "cp1252", "comment": "#", "missing_in": {"name": ["-"]}},
        '# é\nzip|name|5" pipe\n' + "".join(f'0{i}|{"-é"[i % 2]}|{i}" x\n' for i in N),
    ),
    "no header": (
        {"header": False},
        "".join(f"{i * i - 99},{i % 11},,{'yes' if i % 3 else 'no'},1e{i % 30}\n\n" for i in N),
    ),
}
COLUMNS = {"numbers": "few", "quotes": "t", "commas": "when", "codes": "zip"}
DIGESTS = {
    "numbers": "fbba3c07a8e0b8a55a18a7d19d1a136c",
    "quotes": "374d209a157ec9d85000ab53472c8367",
    "commas": "3c24c3f7384b39a5a95b6c6c77a65362",
    "codes": "cfe5f5070bfaa12e1869119d092f0bfc",
    "no header": "fdf2f6bc8034f7bcd89b0ba6633bc277",
}


def rows_of(folder: Path, options: dict[str, Any], text: str) -> list[Any]:
    """The places and the record batches of all rows, as ArrowExampleGen reads them."""
    csv = CsvOptions.model_validate(options)
    (folder / "rows.csv").write_bytes(text.encode(csv.encoding or "utf-8"))
    node = ArrowExampleGen(input_base=str(folder), csv=csv)
    table = open_input(dict(node.exec_properties), "*.csv")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        rows = pipeline | ReadRows(table, pipeline | ReadTypes(table)) | beam.combiners.ToList()
        _ = rows | beam.Map(lambda all_: (folder / "rows").write_bytes(pickle.dumps(all_)))
    return sorted(pickle.loads((folder / "rows").read_bytes()), key=lambda rows: rows[0][0])


@pytest.mark.parametrize("case", CSV)
def test_hashes_and_splits_never_change(tmp_path, monkeypatch, case):
    for name, value in (("_BLOCK_BYTES", 5_000), ("_BYTES_A_COLUMN", 1)):
        monkeypatch.setattr(csv_table, name, value)
    for name, value in (("_PART_BYTES", 4_000), ("_PIECE_BYTES", 1_000)):
        monkeypatch.setattr(csv_text, name, value)
    rows = rows_of(tmp_path, *CSV[case])
    assert np.concatenate([places for places, _ in rows]).tolist() == list(N)
    digest = hashlib.sha256(str(rows[0][1].schema).encode())
    for _, batch in rows:
        digest.update(row_hashes(batch).tobytes())
    column = COLUMNS.get(case, "column_2")
    for by in ("content", "row", "group", "time" if case == "commas" else "stratified"):
        splitting = Splitting(by=by, column=None if by in ("content", "row") else column)
        cuts = find_cuts(rows, splitting, [7, 2, 1])
        splits = [splits_of(each, splitting, [7, 2, 1], cuts) for each in rows]
        digest.update(np.concatenate(splits).astype("<i8").tobytes())
    assert digest.hexdigest()[:32] == DIGESTS[case]


BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([[0], [], [-1], None, [3, 4]], pa.large_list(pa.int64())),
        pa.array(
            [[0.0], [], [float("nan")], [float("inf"), 1.0], [2.5]], pa.large_list(pa.float32())
        ),
        pa.array([[b"a"], [b""], [], [b"", b"a"], [b"no"]], pa.large_list(pa.large_binary())),
        pa.nulls(5, pa.large_list(pa.large_binary())),
    ],
    ["int", "float", "text", "empty"],
)


def test_rows_without_a_required_value_are_left_out():
    """Zeros are values; NaN, infinities and empty texts are not; of slices too."""
    for columns, rows in {
        ("int",): [0, 2, 4],
        ("float",): [0, 3, 4],
        ("text",): [0, 3, 4],
        ("empty",): [],
        ("unknown",): [],
        ("int", "float"): [0, 4],
        (): [0, 1, 2, 3, 4],
    }.items():
        assert with_values((np.arange(5), BATCH), columns)[0].tolist() == rows
        places, batch = with_values((np.arange(2, 4), BATCH.slice(2, 2)), columns)
        assert places.tolist() == [row for row in rows if row in (2, 3)]
        assert batch.num_rows == len(places)
