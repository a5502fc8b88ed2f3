"""A table is the same to a model in every format, whichever of them it was trained on.

The reference is the rows that training reads: `predict` hands the model the same values. A
CSV cell is what `value_text.as_text` says, as Python and pandas write it; bools in three spellings.
"""

from __future__ import annotations

import csv
import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from components import CsvOptions
from components.arrow_example_gen.columns import Kind, as_text
from pipeline.config.config import DataConfig
from pipeline.data.peek import peek
from pipeline.run.input_rows import open_rows
from pipeline.run.raw_rows import model_rows

MOMENT = datetime.datetime(2013, 5, 6, 17, 30)
DECIMALS = [decimal.Decimal("1.50"), None, decimal.Decimal("-0.25")]
INTS = ("int8", "int64", "uint8", "uint64")
COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False, True]),
    **{name: pa.array([0, None, 100], name) for name in INTS},
    "long ints": pa.array([2**53 + 1, -(2**53) - 1, None]),
    "beyond int64": pa.array([2**63, 1, None], pa.uint64()),
    "float32": pa.array([0.1, 1.0, None, -0.0, 1e20], pa.float32()),
    "float64": pa.array([0.1, 1.0, None, -0.0, 1e20, 1 / 3]),
    "whole floats and none": pa.array([1.0, None, 30.0]),
    "float16": pa.array([np.float16(1.5), None], pa.float16()),
    "decimals": pa.array(DECIMALS, pa.decimal128(10, 2)),
    "date32": pa.array([MOMENT.date(), None], pa.date32()),
    "time": pa.array([MOMENT.time(), None], pa.time64("us")),
    "duration": pa.array([datetime.timedelta(seconds=3), None], pa.duration("ms")),
    "string": pa.array(["a", None, "é"]),
    "digits": pa.array(["1", "2.5", None]),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "binary": pa.array([b"a", None, "é".encode()]),
    "words of bools": pa.array(["True", None, "False"]),
    **{
        f"timestamp {unit} {zone}": pa.array([MOMENT, None], pa.timestamp(unit, zone))
        for unit, zone in (("us", None), ("s", "UTC"), ("ms", "+05:30"), ("ns", "Europe/Oslo"))
    },
}
NO_PARQUET = {"float16"}  # Parquet of Arrow 10 has none
NO_CSV_OF = {"words of bools", "digits"}  # texts in Parquet, numbers in CSV: `as_numbers` below


def write(folder: Path, column: pa.Array, *, parquet: bool = True) -> None:
    """The table `x` in every format, with a second column, so that CSV has a delimiter."""
    texts = as_text(column).cast(pa.binary()).to_pylist()
    cells = ["" if text is None else text.decode() for text in texts]
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("x", "row"), *zip(cells, range(len(cells)), strict=True)])
    table = pa.table({"x": column, "row": list(range(len(column)))})
    if parquet:
        pq.write_table(table, folder / "rows.parquet")
        feather.write_feather(table, folder / "rows.arrow")


def trained(folder: Path, source: Any, options: CsvOptions) -> tuple[dict[str, Kind], list[Any]]:
    """The kinds that a model learns, and the rows that it learns from, without missing values."""
    seen = peek(DataConfig(source=source, path=str(folder / f"rows.{source}"), csv=options))
    assert seen is not None
    assert seen.sample is not None
    kinds: Any = {name: kind for name, kind in seen.columns.items() if kind != "unknown"}
    lists = {"int": "int64_list", "float": "float_list", "string": "bytes_list"}
    rows = seen.sample.batch(np.arange(seen.rows)).to_pylist()
    return kinds, [
        {
            name: (lists[kinds[name]], list(map(repr, values)))
            for name, values in row.items()
            if values and values != [b""]
        }
        for row in rows
    ]


def predicted(
    folder: Path, source: Any, kinds: dict[str, Kind], options: CsvOptions
) -> list[bytes]:
    """The tf.Examples that a model gets, of rows of which none is refused."""
    file = folder / f"rows.{source}"
    rows = open_rows([file], str(file), source, options, skip=False)
    rows.needed = kinds
    examples = []
    for batch in rows.batches:
        found = model_rows(batch, kinds, rows.decimal)
        assert found.wrong == []
        examples += found.examples()
    return examples


def same(examples: list[bytes]) -> list[Any]:
    """Examples, a feature without values as one that is not there."""
    import tensorflow as tf

    rows = []
    for serialized in examples:
        features = tf.train.Example.FromString(serialized).features.feature
        of_row = {}
        for name, feature in features.items():
            kind = feature.WhichOneof("kind")
            values = list(getattr(feature, kind).value) if kind else []
            if values and values != [b""]:
                of_row[name] = (kind, [repr(value) for value in values])
        rows.append(of_row)
    return rows


def sources_of(name: str) -> list[str]:
    return ["csv", *([] if name in NO_PARQUET else ["parquet", "arrow"])]


@pytest.mark.parametrize("name", COLUMNS)
def test_predict_hands_on_what_training_reads(tmp_path, name):
    write(tmp_path, COLUMNS[name], parquet=name not in NO_PARQUET)
    options = CsvOptions()
    for source in sources_of(name):
        if source == "csv" and name in NO_CSV_OF:
            continue
        kinds, expected = trained(tmp_path, source, options)
        for other in sources_of(name):
            found = predicted(tmp_path, other, kinds, options)
            assert same(found) == expected, (source, other)


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"decimals"}))
def test_a_column_that_was_learned_as_text(tmp_path, name):
    """JSON has no places of a decimal: 1.50 is 1.5 there."""
    write(tmp_path, COLUMNS[name], parquet=name not in NO_PARQUET)
    options = CsvOptions(text=("x",))
    kinds, expected = trained(tmp_path, "csv", options)
    assert kinds["x"] == "string"
    for other in sources_of(name):
        assert same(predicted(tmp_path, other, kinds, options)) == expected, other


@pytest.mark.parametrize("name", sorted(NO_CSV_OF))
def test_texts_of_parquet_are_the_numbers_that_csv_has(tmp_path, name):
    write(tmp_path, COLUMNS[name])
    kinds, expected = trained(tmp_path, "csv", CsvOptions())
    assert kinds["x"] in ("int", "float")
    for source in ("csv", "parquet", "arrow"):
        assert same(predicted(tmp_path, source, kinds, CsvOptions())) == expected


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("name", ["date32", "time", "timestamp us None", "timestamp s UTC"])
def test_dates_are_no_numbers(kind, name):
    """A cast would give days, or the unit's own ticks."""
    column = COLUMNS[name]
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    found = model_rows(batch, {"x": kind}, ".")
    assert [wrong.row for wrong in found.wrong] == [0]
    assert found.rows.tolist() == [1]
