"""Files of one table: what their footers must agree on, and folders that are columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.arrow_example_gen.columns import Block
from components.arrow_example_gen.parquet import ParquetTable, open_table


def write(file: Path, /, **columns: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return str(file)


def test_kinds_of_all_files_together(tmp_path):
    """A column without a value says nothing of its type, and one large value decides for all."""
    first = write(tmp_path / "a", x=pa.nulls(3), big=pa.array([1, 2, 3], pa.uint64()), l=[[1]] * 3)
    second = write(tmp_path / "b", x=[1.5], big=pa.array([2**63], pa.uint64()), l=[[1]])
    table = open_table([first, second], str(tmp_path))
    assert table.columns == {"x": "float", "big": "string", "l": "int"}
    assert table.lists == {"l"}
    assert table.rows == 4
    assert table.groups == {first: [2, 1], second: [1]}


def test_without_statistics_a_uint64_column_is_read(tmp_path):
    table = pa.table({"big": pa.array([1, 2**63], pa.uint64())})
    pq.write_table(table, tmp_path / "a", write_statistics=False)
    assert open_table([str(tmp_path / "a")], str(tmp_path)).columns == {"big": "string"}


def test_a_column_that_no_example_holds_is_left_out(tmp_path):
    table = open_table([write(tmp_path / "a", x=[1], place=[{"lat": 1.0}])], str(tmp_path))
    assert table.columns == {"x": "int"}
    assert table.left_out == {"place": "struct<lat: double>"}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1.5]}, r"b\.parquet: lacks the column 'y' that .*a\.parquet has"),
        ({"x": [1.5], "y": [1], "z": [1]}, r"a\.parquet: lacks the column 'z' that .*b\.parquet"),
        ({"x": ["1.5"], "y": [1]}, r"b\.parquet: column 'x' is string, and double in .*a\.parquet"),
        ({"x": [1], "y": [1]}, r"b\.parquet: column 'x' is int64, and double in .*a\.parquet"),
        ({"x": [[1.5]], "y": [1]}, r"column 'x' is list<\w+: double>, and double in"),
        ({"x": [{"a": 1}], "y": [1]}, r"column 'x' is struct<a: int64>, and double in"),
    ],
)
def test_files_that_are_no_one_table(second, message, tmp_path):
    files = [
        write(tmp_path / "a.parquet", x=[1.5], y=[1]),
        write(tmp_path / "b.parquet", **second),
    ]
    with pytest.raises(ValueError, match=message):
        open_table(files, str(tmp_path))


def test_integers_of_another_width_are_of_one_type(tmp_path):
    files = [
        write(tmp_path / "a", x=pa.array([1], pa.int8())),
        write(tmp_path / "b", x=[2]),
    ]
    assert open_table(files, str(tmp_path)).columns == {"x": "int"}


def test_folders_named_key_value_are_columns(tmp_path):
    places = ["year=2020/town=A%2FB", "year=2021/town=__HIVE_DEFAULT_PARTITION__"]
    files = [write(tmp_path / place / "0.parquet", x=[1, 2, 3]) for place in places]
    table = open_table(files, str(tmp_path))
    assert table.columns == {"x": "int", "year": "int", "town": "string"}
    rows = [
        row for block in table.all_blocks(["town", "x", "year"]) for row in block.cells.to_pylist()
    ]
    assert rows == [
        {"town": town, "x": x, "year": year}
        for year, town in ((2020, "A/B"), (2021, None))
        for x in (1, 2, 3)
    ]
    # Below the folder that holds them, they are no columns any more.
    assert open_table(files[:1], str(Path(files[0]).parent)).columns == {"x": "int"}


def test_folders_of_other_keys(tmp_path):
    files = [write(tmp_path / place / "0", x=[1]) for place in ("year=2020", "month=1")]
    with pytest.raises(ValueError, match=r"its folders name month, and those of .* year"):
        open_table(files, str(tmp_path))


def test_a_key_that_is_a_column_of_the_file_too(tmp_path):
    file = write(tmp_path / "x=1" / "0", x=[1])
    with pytest.raises(ValueError, match="column 'x' is in the file, and a folder"):
        open_table([file], str(tmp_path))


def test_no_parquet_file(tmp_path):
    (tmp_path / "a").write_text("x,y")
    with pytest.raises(ValueError, match="a is not a Parquet or Arrow file"):
        open_table([str(tmp_path / "a")], str(tmp_path))


def test_a_value_that_cannot_be_written_is_an_error_with_its_row():
    table = ParquetTable((), {}, frozenset(), frozenset(), {}, {}, {})
    cells = pa.RecordBatch.from_pydict({"x": [1, 2], "big": pa.array([1, 2**63], pa.uint64())})
    with pytest.raises(
        ValueError,
        match=r"^a\.parquet, row group 1, row 7: column 'big', uint64, cannot be written as int \(",
    ):
        table.decoded(
            Block(("a.parquet", 1, 2**32), 2**32 + np.array([4, 7]), cells),
            {"x": "int", "big": "int"},
        )


def test_a_damaged_row_group_is_an_error(tmp_path):
    file = write(tmp_path / "a", x=list(range(4)))
    content = bytearray(Path(file).read_bytes())
    content[4:60] = bytes(56)  # the first pages; the footer is at the end
    Path(file).write_bytes(content)
    table = open_table([file], str(tmp_path))
    with pytest.raises(ValueError, match=r"(?s)a, row group 0: cannot be read .* damaged"):
        list(table.all_blocks(["x"]))


def test_the_first_list_that_a_missing_int_shortens(tmp_path):
    lists = pa.array([[1], [None], [2, 3], [4, 5], [6], [7, None]])
    file = write(tmp_path / "a", ints=lists, floats=lists.cast(pa.list_(pa.float64())))
    table = open_table([file], str(tmp_path))
    hole = table.first_hole("ints")
    assert hole is not None
    assert (Path(hole.file).name, hole.group, hole.row) == ("a", 2, 1)
    assert table.first_hole("floats") is None


def repeated_columns() -> pa.Table:
    return pa.table([[1, 2], [3, 4], [0, 1], [5.0, 6.0]], names=["x", "x", "y", "z"])


@pytest.mark.parametrize("ending", ["parquet", "feather"])
@pytest.mark.parametrize("place", [0, 1])
def test_columns_of_one_name_are_refused_with_the_name(tmp_path, ending, place):
    files = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for i, file in enumerate(files):
        table = repeated_columns() if i == place else pa.table({"x": [1], "y": [0], "z": [1.0]})
        if ending == "parquet":
            pq.write_table(table, file)
        else:
            write_arrow(table, file)
    with pytest.raises(ValueError, match=rf"{place}\.{ending}: .*repeated: x\."):
        open_table([str(file) for file in files], str(tmp_path))


def write_arrow(table: pa.Table, file: Path) -> None:
    with pa.ipc.new_file(str(file), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("several", [False, True])
def test_time_zones(tmp_path, several):
    """Of fixed offsets too; one that is unknown is refused before any row is read."""
    for zone in ("+05:30", "-03:00", "UTC", "Europe/Oslo", "Nowhere/X"):
        moments = pa.array([0, None], pa.timestamp("us", zone))
        column = pa.array([[0], None], pa.list_(moments.type)) if several else moments
        file = write(tmp_path / zone / "a", when=column)
        if zone == "Nowhere/X":
            with pytest.raises(ValueError, match=r"a: column 'when' .* no time zone 'Nowhere/X'"):
                open_table([file], str(tmp_path))
            continue
        table = open_table([file], str(tmp_path))
        (block,) = table.all_blocks(["when"])
        (lists,) = table.decoded(block, table.columns)
        hour = {"+05:30": "05:30", "-03:00": "21:00", "Europe/Oslo": "01:00"}.get(zone, "00:00")
        (text,), missing = lists.to_pylist()
        assert text.decode()[11:16] == hour
        assert missing == []
