"""A folder as one table: which files count, and paths with `[`, `*` and `?` in their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.common.errors import ConfigError
from pipeline.config.config import DataConfig
from pipeline.data.data_sources import column_folders, files, place, source_of_folder
from pipeline.data.peek import peek
from pipeline.features.column_facts import measure, source_of
from pipeline.run.input_rows import format_of, input_files, open_rows

ODD = ["a[1]", "b*", "c?", "{d}", "[!x]", "[[]", "[]", "a[1] {x}*", "**", "é[ü]"]


def write(file: Path, rows: int = 2) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": list(range(rows))}), file)
    return file


def found(path: str | Path, source: Any = "parquet") -> list[Path]:
    return files(str(path), "data.path", source=source)


@pytest.mark.parametrize(
    "hidden",
    ["_SUCCESS", ".part.parquet", "_x.parquet", "_temporary/0/a.parquet", ".git/a.parquet"],
)
@pytest.mark.parametrize("folder", [".", "year=2020", "2020/01", "a/k=1"])
def test_hidden_files_are_no_part_of_a_table(tmp_path, folder, hidden):
    table = [write(tmp_path / folder / f"{i}.parquet") for i in range(2)]
    for place_of in (tmp_path, tmp_path / folder):
        (place_of / hidden).parent.mkdir(parents=True, exist_ok=True)
        (place_of / hidden).write_text("torn")
    assert found(tmp_path) == table
    assert [str(file) for file in table] == sorted(ds.dataset(tmp_path).files)


def test_a_key_may_begin_with_an_underscore(tmp_path):
    file = write(tmp_path / "_k=1" / "a.parquet")
    assert found(tmp_path) == [file]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.parquet", "b/a.parquet"], "differ from those of"),
        (["k=1/a.parquet", "l=1/a.parquet"], "differ from those of"),
        (["k=1/a.parquet", "b/a.parquet"], "differ from those of"),
        (["a.csv"], r"is a folder without \*\.parquet files"),
    ],
)
def test_folders_that_are_no_table(tmp_path, names, message):
    for name in names:
        write(tmp_path / name)
    with pytest.raises(ConfigError, match=rf"data\.path={tmp_path}: .*{message}"):
        found(tmp_path)


def test_arrow_folders(tmp_path):
    feather.write_feather(pa.table({"x": [1]}), tmp_path / "a.feather")
    assert source_of(str(tmp_path)) == format_of(str(tmp_path)) == "arrow"
    assert found(tmp_path, "arrow") == [tmp_path / "a.feather"]
    feather.write_feather(pa.table({"x": [1]}), tmp_path / "b.arrow")
    with pytest.raises(ConfigError, match=r"\*\.arrow and \*\.feather files"):
        found(tmp_path, "arrow")


def test_endings_in_capitals(tmp_path):
    file = write(tmp_path / "A.PARQUET")
    assert source_of(str(tmp_path)) == format_of(str(tmp_path)) == "parquet"
    assert found(tmp_path) == [file]


def test_the_format_of_a_folder(tmp_path):
    assert source_of_folder(tmp_path) == "parquet"
    write(tmp_path / "_hidden" / "a.arrow")
    assert source_of_folder(tmp_path) == "parquet"


def test_a_link_into_another_folder_is_not_followed_silently(tmp_path):
    """`glob` would follow it where the look for files did not."""
    write(tmp_path / "table" / "a" / "0.parquet")
    write(tmp_path / "other" / "1.parquet")
    (tmp_path / "table" / "b").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"b/1\.parquet is not a file, or"):
        found(tmp_path / "table")


@pytest.mark.parametrize("source", ["csv", "parquet", "tfrecord"])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_there_is_no_wildcard(tmp_path, odd, source):
    """Beside a file that the name would match as a pattern."""
    wanted = tmp_path / odd / f"{odd}.{source}"
    for file in (wanted, tmp_path / odd / f"a1.{source}", tmp_path / "a1" / wanted.name):
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    assert found(wanted, source) == [wanted]
    assert found(wanted.parent / f"a?.{source}", source) == [wanted.parent / f"a1.{source}"]
    assert column_folders(str(wanted), "data.path", source=source) == [str(wanted.parent)]


@settings(max_examples=50)
@given(name=st.text("ab[]*?{}!-^. ", min_size=1, max_size=6).filter(lambda t: t.strip(".")))
def test_any_existing_name_is_that_file(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    (folder / name).mkdir()
    file = folder / name / f"{name}.csv"
    file.write_text("x")
    for other in ("a", "b", "ab"):
        (folder / name / f"{other}.csv").write_text("y")
    assert found(file, "csv") == [file]


def test_a_wildcard_in_a_folder_that_is_not_there(tmp_path):
    write(tmp_path / "a1" / "rows.csv")
    with pytest.raises(ConfigError, match="a wildcard is allowed in the file's name"):
        found(tmp_path / "a[1]" / "rows.csv", "csv")
    assert found(tmp_path / "a[1]" / "*.csv", "parquet") == [tmp_path / "a1" / "rows.csv"]


@pytest.mark.parametrize("odd", ODD)
def test_tables_below_odd_folders(tmp_path, odd):
    for year in (2020, 2021):
        write(tmp_path / odd / f"year={year}" / "0.parquet")
    write(tmp_path / "a1" / "year=1999" / "0.parquet", rows=1)
    for path in ("", "/year=*/*.parquet", "/year=*/0.parquet"):
        data = DataConfig(source="parquet", path=f"{tmp_path}/{odd}{path}")
        seen = peek(data)
        assert seen is not None
        assert (seen.rows, seen.columns) == (4, {"x": "int", "year": "int"})
        assert place(data.path, "data.path", source="parquet")[0] == str(tmp_path / odd)
        assert measure(data.path, source="parquet").rows == 4
        with input_files(data.path, "parquet") as each:
            rows = open_rows(each, data.path, "parquet", data.csv, skip=False)
            years = [year for batch in rows.batches for year in batch["year"].to_pylist()]
        assert years == [2020, 2020, 2021, 2021]


@pytest.mark.parametrize("odd", ODD)
def test_spans_below_odd_folders(tmp_path, odd):
    for day in (1, 2):
        write(tmp_path / odd / f"day-{day}" / "k=1" / "0.parquet", rows=day)
    write(tmp_path / "a1" / "day-3" / "k=1" / "0.parquet", rows=9)
    path = f"{tmp_path}/{odd}/day-{{SPAN}}/k=*/*.parquet"
    seen = peek(DataConfig(source="parquet", path=path, spans=2))
    assert seen is not None
    assert (seen.rows, set(seen.columns)) == (3, {"x", "k"})
