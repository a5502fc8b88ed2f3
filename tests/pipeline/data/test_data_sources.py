"""CSV, TFRecord and Parquet files become the same rows through their real ExampleGens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_examples import read_splits
from tfrecords import write_tfrecord
from tfx import v1 as tfx
from tfx.orchestration import metadata

from components.arrow_example_gen.row_hash import row_hashes
from pipeline.common.errors import ConfigError
from pipeline.config.config import DataConfig, SplitConfig
from pipeline.data import data_sources, peek
from pipeline.data.data_sources import files, source_of
from pipeline.data.tables import open_table as open_any
from pipeline.engines.engine import BeamConfig
from pipeline.preflight.preflight_rows import Part
from pipeline.run.input_rows import input_files, open_rows
from transform import FeatureSpec, Label

ROWS: list[dict[str, Any]] = [
    {
        "amount": None if i % 5 == 1 else (i - 20) / 2,
        "count": None if i % 7 == 1 else i % 9,
        "city": None if i % 3 == 0 else f"city {i % 4}",
    }
    for i in range(40)
]


def write_arrow(file: Path, rows: list[dict[str, Any]]) -> None:
    """In record batches of 16 rows, compressed."""
    feather.write_feather(pa.Table.from_pylist(rows), file, chunksize=16)


FEATURES = FeatureSpec.model_validate(
    {
        "groups": [
            {"name": "amount", "columns": "amount", "scale": "z_score"},
            {"name": "sets", "columns": "tags_*", "encode": {"multi_hot": {"values": [1, 2]}}},
        ]
    }
)
WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], object]] = {
    "csv": lambda file, rows: pd.DataFrame(rows, dtype=object).to_csv(file, index=False),
    "parquet": lambda file, rows: pq.write_table(pa.Table.from_pylist(rows), file),
    "arrow": write_arrow,
    "tfrecord": lambda file, rows: write_tfrecord(file, rows, "GZIP"),
}


def read_back(row: dict[str, list[Any]]) -> dict[str, Any]:
    """A row of single values: None where one is missing."""
    first = {name: values[0] if values else None for name, values in row.items()}
    return {name: v.decode() if isinstance(v, bytes) else v for name, v in first.items()}


def run_example_gen(
    data: DataConfig,
    folder: Path,
    beam: BeamConfig | None = None,
    features: FeatureSpec = FEATURES,
) -> dict[str, list[dict[str, Any]]]:
    """Runs the node alone and reads what it wrote: split -> rows."""
    tfx.orchestration.LocalDagRunner().run(
        tfx.dsl.Pipeline(
            pipeline_name="source",
            pipeline_root=str(folder / "artifacts"),
            components=[data_sources.example_gen(data, features)],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(
                str(folder / "metadata.sqlite")
            ),
            beam_pipeline_args=(beam or BeamConfig()).pipeline_args(),
        )
    )
    (examples,) = folder.glob("artifacts/*/examples/*")
    return {name: list(map(read_back, rows)) for name, rows in read_splits(examples).items()}


def key(row: dict[str, Any]) -> str:
    return str(sorted(row.items()))


def run_and_expect(
    data: DataConfig, rows: list[dict[str, Any]], folder: Path, beam: BeamConfig | None = None
) -> dict[str, Any]:
    """Runs the node; each split has just the rows that preflight says."""
    features = FEATURES.model_copy(update={"label": Label(column="sold", kind="binary")})
    splits = run_example_gen(data, folder, beam, features)
    seen: Any = peek.peek(data)
    column = data_sources.split_column(data, features)
    found: Any = Part("all", data.path, seen, data, column).splits
    for name, written in splits.items():
        expected = [row for row, split in zip(rows, found, strict=True) if split == name]
        assert sorted(map(key, written)) == sorted(map(key, expected)), name
    assert sum(map(len, splits.values())) == len(rows)
    return splits


PROCESSES = pytest.param("csv", BeamConfig(engine="multi_processing"), marks=pytest.mark.slow)


@pytest.mark.parametrize(("source", "beam"), [*((source, None) for source in WRITERS), PROCESSES])
def test_every_row_arrives_once(source, beam, tmp_path):
    file = tmp_path / f"rows.{source}"
    WRITERS[source](file, ROWS)
    data = DataConfig(source=source, path=str(file), eval_percent=40)
    splits = run_and_expect(data, ROWS, tmp_path, beam)
    assert set(splits) == {"train", "eval"}
    assert min(len(rows) for rows in splits.values()) >= 5


def test_every_format_gives_the_same_values_and_hashes(tmp_path):
    """And so the same splits. Reference: the rows."""
    rows = [
        {"zeros": (0.0, -0.0, 2.5, None)[i % 4], "flag": i % 2, **row} for i, row in enumerate(ROWS)
    ]
    hashes = {}
    for source, write_rows in WRITERS.items():
        file = tmp_path / f"rows.{source}"
        write_rows(file, rows)
        table = open_any([file], source, folders=str(tmp_path))
        agreed = table.agree([(p, table.examine(p)) for p in table.parts(str(file))])
        batches = [batch for part in agreed[1] for _, batch in table.read(part, agreed)]
        read = [row for batch in batches for row in batch.to_pylist()]
        assert list(map(read_back, read)) == rows
        hashes[source] = np.concatenate([row_hashes(batch) for batch in batches]).tolist()
    assert len({tuple(each) for each in hashes.values()}) == 1


def test_rows_without_a_label_are_left_out_where_that_is_said(tmp_path):
    rows = [{**row, "sold": None if i % 5 == 2 else i % 2} for i, row in enumerate(ROWS)]
    file = tmp_path / "rows.csv"
    WRITERS["csv"](file, rows)
    data = DataConfig(path=str(file), drop_rows_without_label=True, eval_percent=40)
    features = FEATURES.model_copy(update={"label": Label(column="sold", kind="binary")})
    splits = run_example_gen(data, tmp_path, features=features)
    wanted = [row for row in rows if row["sold"] is not None]
    assert sorted(map(key, splits["train"] + splits["eval"])) == sorted(map(key, wanted))
    read: Any = peek.peek(data)
    assert (read.rows, read.having("sold").rows) == (len(rows), len(wanted))


SALES: list[dict[str, Any]] = [
    {
        "sold": int(i % 12 == 0),
        "day": f"2024-0{1 + i % 9}-{10 + i % 17}",
        "shop": f"shop {i % 7}",
        "amount": float(i % 3),
    }
    for i in range(120)
]
SPLITS = {
    "row": SplitConfig(by="row"),
    "stratified": SplitConfig(by="stratified"),
    "time": SplitConfig(by="time", column="day"),
    "group": SplitConfig(by="group", column="shop"),
}


@pytest.mark.parametrize(
    ("source", "by"),
    [("csv", "row"), ("csv", "group"), ("parquet", "stratified"), ("tfrecord", "time")],
)
def test_rows_are_split_as_is_said(by, source, tmp_path):
    file = tmp_path / f"*.{source}"
    for name, rows in (("a", SALES[:50]), ("b", SALES[50:])):
        WRITERS[source](tmp_path / f"{name}.{source}", rows)
    data = DataConfig(
        source=source, path=str(file), eval_percent=25, test_percent=25, split=SPLITS[by]
    )
    splits = run_and_expect(data, SALES, tmp_path)
    sizes = [len(splits[name]) for name in ("train", "eval", "test")]
    if by in ("row", "stratified"):
        assert sizes == [60, 30, 30]
    elif by == "time":
        days = [[row["day"] for row in splits[name]] for name in ("train", "eval", "test")]
        assert max(days[0]) < min(days[1]) <= max(days[1]) < min(days[2])
    else:
        shops = [{row["shop"] for row in rows} for rows in splits.values()]
        assert sum(map(len, shops)) == len(set.union(*shops)) == 7


def test_files_of_their_own_for_each_split_in_folders_of_their_own(tmp_path):
    for name, rows in (("old/a", ROWS[:10]), ("old/b", ROWS[10:25]), ("new/a", ROWS[25:])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        WRITERS["csv"](tmp_path / f"{name}.csv", rows)
    data = DataConfig(path=f"{tmp_path}/old/*.csv", eval_path=f"{tmp_path}/new/a.csv")
    splits = run_example_gen(data, tmp_path)
    assert sorted(map(key, splits["train"])) == sorted(map(key, ROWS[:25]))
    assert sorted(map(key, splits["eval"])) == sorted(map(key, ROWS[25:]))


def test_peek_knows_names_types_and_number_of_rows(tmp_path, monkeypatch):
    columns = {"amount": "float", "count": "int", "city": "string"}
    for source in ("csv", "parquet", "tfrecord"):
        file = tmp_path / f"rows.{source}"
        WRITERS[source](file, ROWS)
        seen: Any = peek.peek(DataConfig(source=source, path=str(file)))
        assert seen == peek.DataPeek(columns, len(ROWS), complete=True)
    monkeypatch.setattr(peek, "_PEEKED_ROWS", 10)
    seen = peek.peek(DataConfig(path=str(tmp_path / "rows.csv")))
    assert (seen.rows, seen.complete) == (10, False)


def test_folders_that_are_columns(tmp_path):
    for year in (2020, 2021):
        (tmp_path / "sales" / f"year={year}").mkdir(parents=True)
        WRITERS["parquet"](tmp_path / "sales" / f"year={year}" / "0.parquet", ROWS)
    expected = [row | {"year": year} for year in (2020, 2021) for row in ROWS]
    run_and_expect(DataConfig(source="parquet", path=f"{tmp_path}/sales"), expected, tmp_path)


def test_a_path_with_a_date_is_the_files_of_the_latest_days(tmp_path):
    """A look at the data sees what ExampleGen reads."""
    for day, rows in (("2024-02-28", 3), ("2024-02-29", 4), ("2023-01-01", 5)):
        folder = tmp_path / f"day={day}" / "region=Oslo"
        folder.mkdir(parents=True)
        WRITERS["parquet"](folder / "a.parquet", ROWS[:rows])
    path = f"{tmp_path}/day={{YYYY}}-{{MM}}-{{DD}}/*/*.parquet"
    seen = {}
    for spans in (1, 2):
        seen[spans] = peek.peek(DataConfig(source="parquet", path=path, spans=spans))
    assert [seen[spans].rows for spans in (1, 2)] == [4, 7]
    assert set(seen[1].columns) == set(seen[2].columns) == {"amount", "count", "city", "region"}
    with pytest.raises(ConfigError, match=r"data.path=.*there is no span; .* has day=2023-01-01"):
        peek.peek(DataConfig(source="parquet", path=f"{tmp_path}/{{SPAN}}/a.parquet"))


def test_a_path_with_a_span_needs_an_eval_path_with_one():
    with pytest.raises(ValueError, match=r"eval_path=b.csv: only one .*SPAN"):
        DataConfig(path="{SPAN}/a.csv", eval_path="b.csv")


def write(file: Path, rows: int = 2) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": list(range(rows))}), file)
    return file


def found(path: str | Path, source: Any = "parquet") -> list[Path]:
    return files(str(path), "data.path", source=source)


HIDDEN = ("_SUCCESS", ".part.parquet", "_x.parquet", "_temporary/0/a.parquet", ".git/a.parquet")


@pytest.mark.parametrize("folder", [".", "_k=1"])
def test_hidden_files_are_no_part_of_a_table(tmp_path, folder):
    table = [write(tmp_path / folder / f"{i}.parquet") for i in range(2)]
    for hidden in HIDDEN:
        for place_of in (tmp_path, tmp_path / folder):
            (place_of / hidden).parent.mkdir(parents=True, exist_ok=True)
            (place_of / hidden).write_text("torn")
    assert found(tmp_path) == table


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.parquet", "b/a.parquet"], "differ from those of"),
        (["k=1/a.parquet", "l=1/a.parquet"], "differ from those of"),
        (["k=1/a.parquet", "k=1/l=1/a.parquet"], "differ from those of"),
        (["a.csv"], r"is a folder without \*\.parquet files"),
    ],
)
def test_folders_that_are_no_table(tmp_path, names, message):
    for name in names:
        write(tmp_path / name)
    with pytest.raises(ConfigError, match=rf"data\.path={tmp_path}: .*{message}"):
        found(tmp_path)


def test_the_format_of_a_folder(tmp_path):
    assert source_of(str(tmp_path)) == "parquet"
    write(tmp_path / "_hidden" / "a.arrow")
    file = write(tmp_path / "A.PARQUET")
    assert source_of(str(tmp_path)) == "parquet"
    assert found(tmp_path) == [file]
    folder = tmp_path / "arrow"
    first = write(folder / "a.feather")
    assert source_of(str(folder)) == "arrow"
    assert found(folder, "arrow") == [first]
    write(folder / "b.arrow")
    with pytest.raises(ConfigError, match=r"\*\.arrow and \*\.feather files"):
        found(folder, "arrow")


def test_a_link_into_another_folder_is_not_followed_silently(tmp_path):
    """`glob` would follow it where the look for files did not."""
    write(tmp_path / "table" / "a" / "0.parquet")
    write(tmp_path / "other" / "1.parquet")
    (tmp_path / "table" / "b").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"b/1\.parquet is not a file, or"):
        found(tmp_path / "table")


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


@pytest.mark.parametrize("odd", ["a[1]", "{d}", "[]", "é[ü]"])
def test_tables_and_spans_below_odd_folders(tmp_path, odd):
    for year in (2020, 2021):
        write(tmp_path / odd / f"year={year}" / "0.parquet")
    write(tmp_path / "a1" / "year=1999" / "0.parquet", rows=1)
    for path in ("", "/year=*/*.parquet", "/year=*/0.parquet"):
        data = DataConfig(source="parquet", path=f"{tmp_path}/{odd}{path}")
        seen = peek.peek(data)
        assert (seen.rows, seen.columns) == (4, {"x": "int", "year": "int"})
        with input_files(data.path, "parquet") as each:
            rows = open_rows(each, data.path, "parquet", data.csv, skip=False)
            years = [year for batch in rows.batches for year in batch["year"].to_pylist()]
        assert years == [2020, 2020, 2021, 2021]
    for day in (1, 2):
        write(tmp_path / odd / f"day-{day}" / "k=1" / "0.parquet", rows=day)
    write(tmp_path / "a1" / "day-3" / "k=1" / "0.parquet", rows=9)
    path = f"{tmp_path}/{odd}/day-{{SPAN}}/k=*/*.parquet"
    seen = peek.peek(DataConfig(source="parquet", path=path, spans=2))
    assert (seen.rows, set(seen.columns)) == (3, {"x", "k"})
