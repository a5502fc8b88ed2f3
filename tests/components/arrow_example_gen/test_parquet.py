"""Parquet and Arrow files as one table: what must agree, folders that are columns, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from components.arrow_example_gen.columns import Block
from components.arrow_example_gen.parquet import (
    ParquetTable,
    _folder_keys,
    open_table,
)


def write(file: Path, /, **columns: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return str(file)


def test_kinds_of_all_files_together(tmp_path):
    """A column without a value says nothing of its type; integers of any width are of one type."""
    place = [{"lat": 1.0}]
    small, lists = pa.array([1], pa.int8()), pa.nulls(3, pa.list_(pa.int64()))
    ids = [pa.array(each, pa.uint64()) for each in ([1, 2, 3], [2**63])]
    first = write(tmp_path / "a", x=pa.nulls(3), n=[1] * 3, l=lists, id=ids[0], place=place * 3)
    second = write(tmp_path / "b", x=[1.5], n=small, l=[None], id=ids[1], place=place)
    table = open_table([first, second], str(tmp_path))
    assert table.columns == {"x": "float", "n": "int", "l": "int", "id": "string"}
    assert table.lists == {"l"}
    assert table.left_out == {"place": "struct<lat: double>"}
    assert table.rows == 4
    assert table.groups == {first: [2, 1], second: [1]}


TABLE = pa.table(
    {
        "number": [0.5, None, 2.5, -1.0, 0.0],
        "kind": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
        "several": [[1, 2], [], None, [3], [4]],
        "nothing": pa.nulls(5),
        "place": [{"lat": 1.0}] * 5,
    }
)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_arrow_files_are_read_as_parquet_files_are(tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, tmp_path / "a", compression=compression, chunksize=2)
    pq.write_table(TABLE, tmp_path / "b", row_group_size=2)
    arrow, parquet = (open_table([str(tmp_path / name)], str(tmp_path)) for name in "ab")
    for name in ("columns", "lists", "left_out"):
        assert getattr(arrow, name) == getattr(parquet, name)
    assert [*arrow.groups.values()] == [*parquet.groups.values()] == [[2, 2, 1]]
    names = ["number", "kind", "several"]
    for each, other in zip(arrow.all_blocks(names), parquet.all_blocks(names), strict=True):
        assert each.cells.to_pylist() == other.cells.to_pylist()
        assert each.places.tolist() == other.places.tolist()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1.5]}, r"b\.parquet: lacks the column 'y' that .*a\.parquet has"),
        ({"x": [1.5], "y": [1], "z": [1]}, r"a\.parquet: lacks the column 'z' that .*b\.parquet"),
        ({"x": ["1.5"], "y": [1]}, r"b\.parquet: column 'x' is string, and double in .*a\.parquet"),
        ({"x": [1], "y": [1]}, r"b\.parquet: column 'x' is int64, and double in .*a\.parquet"),
    ],
)
def test_files_that_are_no_one_table(second, message, tmp_path):
    files = [
        write(tmp_path / "a.parquet", x=[1.5], y=[1]),
        write(tmp_path / "b.parquet", **second),
    ]
    with pytest.raises(ValueError, match=message):
        open_table(files, str(tmp_path))


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
    other = write(tmp_path / "month=1" / "0", x=[1])
    with pytest.raises(ValueError, match=r"its folders name month, and those of .* year, town"):
        open_table([*files, other], str(tmp_path))
    file = write(tmp_path / "x=1" / "0", x=[1])
    with pytest.raises(ValueError, match="column 'x' is in the file, and a folder"):
        open_table([file], str(tmp_path))


def test_no_parquet_file(tmp_path):
    (tmp_path / "a").write_text("x,y")
    feather.write_feather(TABLE, tmp_path / "b")
    whole = (tmp_path / "b").read_bytes()
    (tmp_path / "b").write_bytes(whole[: len(whole) // 2])
    for name in "ab":
        with pytest.raises(ValueError, match=f"{name} is not a Parquet or Arrow file"):
            open_table([str(tmp_path / name)], str(tmp_path))


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


def test_columns_of_one_name_are_refused_with_the_name(tmp_path):
    twice = pa.table([[1, 2], [3, 4], [0, 1]], names=["x", "x", "y"])
    pq.write_table(pa.table({"x": [1], "y": [0]}), tmp_path / "0")
    pq.write_table(twice, tmp_path / "1")
    with pa.ipc.new_file(str(tmp_path / "2"), twice.schema) as stream:
        stream.write_table(twice)
    for files in ("01", "10", "02", "20"):
        with pytest.raises(ValueError, match=rf"{max(files)}: .*repeated: x\."):
            open_table([str(tmp_path / name) for name in files], str(tmp_path))


def test_time_zones(tmp_path):
    """Of fixed offsets too; one that is unknown is refused before any row is read."""
    for zone in ("+05:30", "UTC", "Europe/Oslo", "Nowhere/X"):
        moments = pa.array([0, None], pa.timestamp("us", zone))
        file = write(tmp_path / zone / "a", when=moments)
        if zone == "Nowhere/X":
            with pytest.raises(ValueError, match=r"a: column 'when' .* no time zone 'Nowhere/X'"):
                open_table([file], str(tmp_path))
            continue
        table = open_table([file], str(tmp_path))
        (block,) = table.all_blocks(["when"])
        (lists,) = table.decoded(block, table.columns)
        hour = {"+05:30": "05:30", "Europe/Oslo": "01:00"}.get(zone, "00:00")
        (text,), missing = lists.to_pylist()
        assert text.decode()[11:16] == hour
        assert missing == []


def values(texts: list[str]) -> list[int | str | None]:
    """The values of key `k` of a file in each folder `k=text`."""
    files = [f"/data/k={text}/{i}.parquet" for i, text in enumerate(texts)]
    return [keys[0][1] for keys in _folder_keys(files, ["/data"]).values()]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["١٢"], ["١٢"]),
        (["+5"], ["+5"]),
        (["01", "12"], [1, 12]),
        (["-3", "-0"], [-3, 0]),
        (["a%2Fb", "a+b", "%zz"], ["a/b", "a+b", "%zz"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["1", "", "2"], ["1", "", "2"]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
    ],
)
def test_only_plain_decimal_integers_are_ints(texts, expected):
    """As pyarrow.dataset takes Hive's folders, but for its hexadecimal numbers and int32."""
    keys = values(texts)
    assert keys == expected
    assert list(map(type, keys)) == list(map(type, expected))


def test_keys_count_below_the_deepest_folder_that_was_named():
    file = "/data/a=1/b=2/0.parquet"
    for folders in (["/data", "/data/a=1"], ["/data/a=1", "/data"]):
        assert _folder_keys([file], folders) == {file: (("b", 2),)}
    with pytest.raises(ValueError, match=r"two of its folders are named a=\.\.\."):
        _folder_keys(["/data/a=1/a=2/0.parquet"], ["/data"])
