"""Folders that are columns; the reference is pyarrow.dataset's Hive partitioning."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from components.arrow_example_gen.parquet import folder_keys

INT32 = range(-(2**31), 2**31)


def values(texts: list[str]) -> list[int | str | None]:
    """The values of key `k` of a file in each folder `k=text`."""
    files = [f"/data/k={text}/{i}.parquet" for i, text in enumerate(texts)]
    return [keys[0][1] for keys in folder_keys(files, ["/data"]).values()]


def arrow_values(texts: list[str], folder: Path) -> list[int | str | None]:
    """What pyarrow.dataset makes of them, all folders together."""
    for i, text in enumerate(texts):
        (folder / f"k={text}").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"row": [i]}), folder / f"k={text}" / f"{i}.parquet")
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    rows = sorted(table.to_pylist(), key=lambda row: row["row"])
    return [row["k"] for row in rows]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1_2"], ["1_2"]),
        (["2020_01"], ["2020_01"]),
        (["١٢"], ["١٢"]),
        (["²"], ["²"]),
        (["%205"], [" 5"]),
        (["5%20"], ["5 "]),
        (["5%0A"], ["5\n"]),
        (["+5"], ["+5"]),
        (["1.0"], ["1.0"]),
        (["1e3"], ["1e3"]),
        (["0x10"], ["0x10"]),
        ([""], [""]),
        (["01", "12"], [1, 12]),
        (["-3", "-0"], [-3, 0]),
        (["%31%32"], [12]),
        (["a%2Fb", "a+b", "%zz"], ["a/b", "a+b", "%zz"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["__HIVE_DEFAULT_PARTITION__"], [None]),
        (["1", "1_2"], ["1", "1_2"]),
        (["1", "", "2"], ["1", "", "2"]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
        (["1", "0" * 30 + "1"], ["1", "0" * 30 + "1"]),
    ],
)
def test_only_plain_decimal_integers_are_ints(texts, expected):
    found = values(texts)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.text("0123456789-+_. %x١²aé", max_size=6),
            st.integers(-(2**31), 2**31 - 1).map(str),
            st.just("__HIVE_DEFAULT_PARTITION__"),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_values_are_those_of_pyarrow_dataset(texts):
    """Where Arrow reads no hexadecimal numbers, and no int32 limits it."""
    assume(not any(re.search(r"0x|%[0-9a]", text) for text in texts))
    assume(any(text != "__HIVE_DEFAULT_PARTITION__" for text in texts))  # it has no type to infer
    found = values(texts)
    assume(all(value in INT32 for value in found if isinstance(value, int)))
    with tempfile.TemporaryDirectory() as folder:
        assert found == arrow_values(texts, Path(folder))


@pytest.mark.parametrize(
    "text", ["%31", "%2D7", "a%20b", "%C3%A9", "50%25", "%2F", "%3D", "%", "%zz"]
)
def test_percent_signs_are_decoded_as_by_pyarrow_dataset(text, tmp_path):
    assert values([text]) == arrow_values([text], tmp_path)


def test_keys_count_below_the_deepest_folder_that_was_named():
    file = "/data/a=1/b=2/0.parquet"
    for folders in (["/data", "/data/a=1"], ["/data/a=1", "/data"]):
        assert folder_keys([file], folders) == {file: (("b", 2),)}


def test_a_key_of_two_folders_of_one_path():
    with pytest.raises(ValueError, match=r"two of its folders are named a=\.\.\."):
        folder_keys(["/data/a=1/a=2/0.parquet"], ["/data"])
