"""`predict`: every format that it reads, what it writes, and what it refuses.

The model is a SavedModel of two additions, so that every prediction is known: reference Python
floats, to 1e-6.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from tfrecords import write_tfrecord  # noqa: E402

from components import CsvOptions  # noqa: E402
from pipeline.cli.cli import main  # noqa: E402

COLUMNS = [
    {"name": "size", "dtype": "float32", "argument": "size"},
    {"name": "rooms", "dtype": "int64", "argument": "rooms"},
    {"name": "town", "dtype": "string", "argument": "town"},
]
ROWS: list[dict[str, Any]] = [
    {"id": "a1", "size": 1.5, "rooms": 2, "town": "Oslo"},
    {"id": "a2", "size": None, "rooms": 3, "town": None},
    {"id": "a3", "size": -4.0, "rooms": None, "town": "Ås"},
]


def logit(row: dict[str, Any]) -> float:
    return (row["size"] or 0.0) + (row["rooms"] or 0) + 10.0 * (row["town"] == "Oslo")


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def dense(examples, dtypes):
    """Column -> values, 0 or an empty text where one is missing."""
    spec = {name: tf.io.VarLenFeature(dtype) for name, dtype in dtypes.items()}
    shape = [tf.size(examples, tf.int64), tf.constant(1, tf.int64)]
    return {
        name: tf.sparse.to_dense(tf.SparseTensor(values.indices, values.values, shape))
        for name, values in tf.io.parse_example(examples, spec).items()
    }


class _Module(tf.Module):
    def __init__(self, form: str, columns: list[dict[str, str]] = COLUMNS):
        super().__init__()
        self._form = form
        self._columns = lambda: columns  # tf.Module wraps a list, and the dicts in it

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(self, examples):
        found = dense(examples, {each["name"]: each["dtype"] for each in self._columns()})
        found = {column["argument"]: found[column["name"]] for column in self._columns()}
        town = 10.0 * tf.cast(tf.equal(found["town"], "Oslo"), tf.float32)
        value = found["size"] + tf.cast(found["rooms"], tf.float32) + town
        if self._form == "binary":
            value = tf.sigmoid(value)
        elif self._form == "multiclass":
            value = tf.concat([value, tf.zeros_like(value), -value], axis=1)
        return {"outputs": value}


class _Checked(_Module):
    """Its transform knows one town, and takes a missing size or one above 100 for no date."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform(self, examples):
        found = dense(examples, {"size": tf.float32, "town": tf.string})
        id_of = tf.where(tf.equal(found["town"], "Oslo"), 0, 1)  # 2 is a missing one
        id_of = tf.where(tf.equal(found["town"], ""), 2, id_of)
        size = found["size"]
        is_missing = (size > 100) | (size == 0) | tf.math.is_nan(size)
        bits = tf.where(is_missing, 4, 0)
        return {"ids": tf.cast(id_of, tf.int64), "missing": tf.cast(bits, tf.int64)}


def save(
    module, folder, label=None, *, columns=COLUMNS, checks=None, reading=None, **signatures
) -> Path:
    """Write a SavedModel with the files that the trainer's export adds."""
    tf.saved_model.save(
        module, str(folder), signatures={"serving_default": module.serve, **signatures}
    )
    files = {"raw_columns": {"version": 1, "columns": columns}, "input_checks": checks}
    files["reading"] = reading
    files["label"] = label and {"version": 1, "column": "sold", **label}
    extra = folder / "assets.extra"
    extra.mkdir()
    for name, value in files.items():
        if value is not None:
            (extra / f"{name}.json").write_text(json.dumps(value))
    return folder


CHECKS = {
    "version": 1,
    "categories": [{"column": "town", "output": "ids", "position": 0, "ids": [1, 1]}],
    "dates": [{"column": "size", "output": "missing", "word": 0, "bit": 2}],
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> Path:
    """A model that says which inputs it does not know."""
    module = _Checked("regression")
    label, folder = LABELS["regression"], tmp_path_factory.mktemp("checked")
    return save(module, folder, label, checks=CHECKS, transform_features=module.transform)


def test_predictions_are_written_with_digits_that_read_back_as_the_number(models, tmp_path):
    """The shortest text of a float32, 1.700002e+09, is 48 less as a number."""
    file = tmp_path / "rows.csv"
    file.write_text("size,rooms,town\n1700002048,0,\n0.1,0,\n")
    found = [float(row["prediction"]) for row in predicted(models["regression"], file)]
    assert found == [1_700_002_048.0, struct.unpack("f", struct.pack("f", 0.1))[0]]


def test_unseen_categories_are_counted_and_predicted(checked, tmp_path, capfd):
    file = tmp_path / "rows.csv"
    towns = ["Oslo", "Atlantis", "", *["Quito"] * 1_500]
    file.write_text("size,rooms,town\n" + "".join(f"1,2,{town}\n" for town in towns))
    assert len(predicted(checked, file)) == len(towns)
    assert capfd.readouterr().err.count("not in the training data: town (1,501 rows)") == 1


def test_a_date_that_cannot_be_read_follows_on_error(checked, tmp_path, capfd):
    """A missing date is none of them."""
    file = tmp_path / "rows.parquet"
    sizes = [math.nan, None, 1.0]
    pq.write_table(pa.table({"size": sizes, "rooms": [1, 2, 3], "town": ["Oslo"] * 3}), file)
    assert len(predicted(checked, file)) == 3
    file = tmp_path / "rows.csv"
    file.write_text("size,rooms,town\n1,1,Oslo\n101,2,Oslo\n,3,Oslo\n2,x,Oslo\n3,3,Oslo\n")
    assert main(["predict", str(checked), str(file)]) == 2
    assert f"--data={file}, line 3: size='101' is not a date" in capfd.readouterr().err
    found = [float(row["prediction"]) for row in predicted(checked, file, "--on-error", "skip")]
    assert "2 rows skipped, with values" in capfd.readouterr().err
    assert found == pytest.approx([12.0, 13.0, 16.0], abs=1e-6)


LABELS = {
    "regression": {"kind": "regression", "classes": None, "outputs": "values"},
    "binary": {"kind": "binary", "classes": ["no", "yes"], "outputs": "probabilities"},
    "multiclass": {"kind": "multiclass", "classes": ["x", "y", "z"], "outputs": "logits"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Kind of label -> folder of a model's versions."""
    folders = {}
    for kind, label in LABELS.items():
        folders[kind] = tmp_path_factory.mktemp(kind)
        save(_Module(kind), folders[kind] / "7", label)
    return folders


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    return pd.DataFrame(rows, dtype=object).to_csv(index=False, sep=delimiter)


def written(file: Path) -> Path:
    """`ROWS` in the format of the name."""
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    elif file.suffix == ".feather":
        feather.write_feather(pa.Table.from_pylist(ROWS), file)
    elif file.suffix == ".tfrecord":
        write_tfrecord(file, ROWS)
    else:
        file.write_text(as_csv(ROWS), encoding="utf-8")
    return file


def predicted(model: Path, source: Path | str, *arguments: str) -> list[dict[str, str]]:
    output = model.parent / "predictions.csv"
    command = ["predict", "--model", str(model), "--data", str(source), "--output", str(output)]
    assert main([*command, *arguments]) == 0
    with output.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def refusal(capfd: Any, model: Path, source: Path | str, *arguments: str) -> str:
    assert main(["predict", "--model", str(model), "--data", str(source), *arguments]) != 0
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    return captured.out + captured.err


@pytest.mark.parametrize("ending", ["parquet", "feather", "tfrecord", "csv.XZ", "tfrecord.xz"])
def test_every_format_and_compression_gives_the_same(models, tmp_path, ending):
    format_, _, codec = ending.lower().partition(".")
    content = written(tmp_path / f"plain.{format_}").read_bytes()
    file = tmp_path / f"rows.{ending}"
    file.write_bytes(lzma.compress(content) if codec else content)
    rows = predicted(models["regression"], file)
    assert [row["id"] for row in rows] == ["a1", "a2", "a3"]
    assert [row["town"] for row in rows] == ["Oslo", "", "Ås"]
    assert [float(row["prediction"]) for row in rows] == pytest.approx(list(map(logit, ROWS)))


NUMBERED = [{**column, "name": f"column_{i}"} for i, column in enumerate(COLUMNS, 1)]


def trained_with(folder: Path, **options: Any) -> Path:
    """Write a regression model of the data that `data.csv` of its YAML described so."""
    given = CsvOptions.model_validate(options).model_dump(mode="json")
    reading = {"version": 1, "source": "csv", "csv": given}
    save(_Module("regression"), folder / "7", LABELS["regression"], reading=reading)
    return folder


AS_TRAINED = [  # rows, read with missing: ["", Oslo], and decimal: ","
    {"id": "a1", "size": "1,5", "rooms": "1002", "town": "Oslo"},
    {"id": "a2", "size": None, "rooms": "3", "town": "NA"},
]


@pytest.mark.parametrize(("ending", "given"), [("csv", False), ("csv", True), ("feather", True)])
def test_texts_are_read_as_in_training_in_every_format(tmp_path, capfd, write, ending, given):
    """`--config` of the same pipeline changes nothing, whether or not it sets `data.csv`."""
    options = {"missing": ["", "Oslo"], "decimal": ","}
    model = trained_with(tmp_path / "model", **options)
    config = write(lambda c: c["data"].update(csv=options if ending == "csv" else {}))
    arguments = ["--config", str(config)] if given else []
    file = tmp_path / f"rows.{ending}"
    if ending == "csv":
        file.write_text(as_csv(AS_TRAINED, ";"))
    else:
        table = pa.Table.from_pylist(AS_TRAINED)
        town = table["town"].dictionary_encode()
        feather.write_feather(table.set_column(3, "town", town), file)
    rows = predicted(model, file, *arguments)
    assert [float(row["prediction"]) for row in rows] == [1003.5, 3.0]
    assert [row["town"] for row in rows] == ["", "NA"]
    assert not capfd.readouterr().err.strip()


def test_utf8_is_read_as_such_and_said(tmp_path, capfd):
    model = trained_with(tmp_path / "model", encoding="cp1252")
    (tmp_path / "rows.csv").write_text("size,rooms,town\n1.5,2,Ås\n", encoding="utf-8")
    (row,) = predicted(model, tmp_path / "rows.csv")
    assert (row["town"], float(row["prediction"])) == ("Ås", 3.5)
    assert "not in cp1252" in capfd.readouterr().err


def test_a_model_of_numbered_columns_reads_files_without_names(tmp_path, capfd):
    (tmp_path / "rows.csv").write_text("1.5,2,Oslo\n,3,\n")
    for name, csv_ in (("silent", None), ("model", {"header": False})):
        reading = csv_ and {"version": 1, "source": "csv", "csv": csv_}
        model = _Module("regression", NUMBERED)
        save(model, tmp_path / name / "7", columns=NUMBERED, reading=reading)
    printed = refusal(capfd, tmp_path / "silent", tmp_path / "rows.csv")
    assert "first line looks like data" in printed
    assert "--config" in printed
    rows = predicted(tmp_path / "model", tmp_path / "rows.csv")
    assert [float(row["outputs"]) for row in rows] == pytest.approx([13.5, 3.0])


def test_a_config_that_contradicts_the_model_is_said(tmp_path, capfd, write):
    model = trained_with(tmp_path / "model", missing=["", "Oslo"], encoding="cp1252")
    config = write(lambda c: c["data"].update(csv={"missing": [""], "encoding": "utf-8"}))
    (tmp_path / "rows.csv").write_text("size,rooms,town\n1.5,2,Oslo\n")
    (row,) = predicted(model, tmp_path / "rows.csv", "--config", str(config))
    assert float(row["prediction"]) == 13.5
    (said,) = capfd.readouterr().err.strip().splitlines()
    assert "data.csv.missing" in said
    assert "['', 'Oslo']" in said


def test_a_model_that_does_not_say_how_cells_were_read(models, tmp_path, capfd):
    predicted(models["regression"], written(tmp_path / "rows.csv"))
    assert capfd.readouterr().err.count("--config") == 1
    predicted(models["regression"], written(tmp_path / "rows.parquet"))
    assert not capfd.readouterr().err.strip()


def test_standard_input(models, monkeypatch, tmp_path):
    file = tmp_path / "rows.parquet"
    stream = io.TextIOWrapper(io.BytesIO(as_csv(ROWS).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert len(predicted(models["regression"], "-", "--keep", "id")) == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written(file).read_bytes())))
    rows = predicted(models["regression"], "-", "--source", "parquet", "--keep", "town,id")
    assert list(rows[0]) == ["town", "id", "prediction"]


def test_classes_have_names(models, tmp_path):
    file = written(tmp_path / "rows.csv")
    binary = predicted(models["binary"], file, "--keep", "id")
    assert list(binary[0]) == ["id", "prediction", "probability_no", "probability_yes"]
    assert [row["prediction"] for row in binary] == ["yes", "yes", "no"]
    probabilities = [float(row["probability_yes"]) for row in binary]
    assert probabilities == pytest.approx([sigmoid(logit(row)) for row in ROWS], rel=1e-6)
    several = predicted(models["multiclass"], file, "--keep", "id")
    assert [row["prediction"] for row in several] == ["x", "x", "z"]
    sums = [sum(float(row[f"probability_{c}"]) for c in "xyz") for row in several]
    assert sums == pytest.approx([1.0, 1.0, 1.0])


def test_the_first_rows_are_shown(models, tmp_path, capfd):
    file = tmp_path / "many.csv"
    file.write_text(as_csv(ROWS * 4), encoding="utf-8")
    assert main(["predict", "--model", str(models["binary"]), "--data", str(file)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["row", "prediction", "probability_no", "probability_yes"]
    assert lines[3].split()[:2] == ["3", "no"]
    assert "--output" in lines[-1]
    assert len(lines) == 12


def test_many_rows_keep_their_order(models, tmp_path):
    file = tmp_path / "rows.csv"
    many = [{"id": str(i), "size": i, "rooms": 0, "town": "x"} for i in range(5000)]
    file.write_text(as_csv(many), encoding="utf-8")
    rows = predicted(models["regression"], file, "--keep", "id")
    assert [int(row["id"]) for row in rows] == list(range(5000))
    assert [float(row["prediction"]) for row in rows] == list(range(5000))


BAD = "id,size,rooms,town\na,1,2,x\nb,wide,2,x\nc,1,2.5,x\nd,1,2,x,y\ne,3,1,x\n"


def test_bad_rows_end_it_with_line_and_column_or_are_left_out(models, tmp_path, capfd):
    file = tmp_path / "rows.csv"
    file.write_text(BAD)
    text = refusal(capfd, models["regression"], file)
    assert "line 5: 5 cells under a header of 4 columns" in text
    file.write_text(BAD.replace("d,1,2,x,y", "d,1,2,x"))
    text = refusal(capfd, models["regression"], file)
    assert "rows.csv, line 3: size='wide' is not a number, which the model expects" in text
    assert "--on-error skip" in text
    file.write_text(BAD)
    rows = predicted(models["regression"], file, "--on-error", "skip")
    assert [row["id"] for row in rows] == ["a", "e"]
    printed = capfd.readouterr().err
    assert "2 rows skipped, with values" in printed
    assert "line 3: size='wide'" in printed
    assert "1 row skipped, with more or fewer cells than the header" in printed


def test_the_input_is_not_overwritten(models, tmp_path, capfd):
    file = written(tmp_path / "rows.csv")
    before = file.read_bytes()
    (tmp_path / "same.csv").symlink_to(file)
    for other in (file, tmp_path / "same.csv"):
        text = refusal(capfd, models["regression"], file, "--output", str(other))
        assert f"--output={other}: is the input file" in text
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "id,size,town\na,1,x\n", "missing column: rooms (required by the model)"),
        ("rows.csv", "Rooms,size,town\n2,1,x\n", "missing column: rooms (did you mean 'Rooms'?)"),
        ("rows.xlsx", "PK", "a spreadsheet. Save its table as CSV"),
        ("rows.csv", "id,size,rooms,town\n", "no rows"),
        ("rows.csv", b"id,size,rooms,town\n\xe5,1,2,x\n", "YAML with --config"),
        ("rows.jsonl", "[1, 2]\n", "JSON. Write its rows as CSV or Parquet"),
    ],
)
def test_inputs_that_cannot_be_read(models, tmp_path, capfd, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refusal(capfd, models["regression"], tmp_path / name)


def test_models_that_cannot_be_used(models, tmp_path, capfd):
    file = written(tmp_path / "rows.csv")
    assert "no SavedModel there" in refusal(capfd, tmp_path, file)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"\x08\x01torn")
    assert "damaged or incomplete" in refusal(capfd, tmp_path, file)
    foreign = tmp_path / "foreign"
    module = _Module("regression")
    tf.saved_model.save(module, str(foreign), signatures={"serving_default": module.serve})
    assert "use a model that this pipeline pushed" in refusal(capfd, foreign, file)


def test_a_damaged_record(models, tmp_path, capfd):
    file = written(tmp_path / "rows.tfrecord")
    data = bytearray(file.read_bytes())
    data[14] ^= 1  # in the first record
    file.write_bytes(data)
    printed = refusal(capfd, models["binary"], file)
    assert f"--data: {file}, record 1: its checksum is not that of its bytes" in printed
    rows = predicted(models["binary"], file, "--on-error", "skip")
    assert len(rows) == len(ROWS) - 1
    assert "1 row skipped, damaged" in capfd.readouterr().err


@pytest.mark.parametrize("rooms", [["2", "wide", "2"], [2.0, 2.5, 2.0]])
def test_bad_values_of_parquet_end_it_or_are_left_out(models, tmp_path, capfd, rooms):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"size": [1.0] * 3, "rooms": rooms, "town": ["x"] * 3}), file)
    text = refusal(capfd, models["regression"], file)
    assert f"--data={file}, row 2: rooms='{rooms[1]}' is not a whole number" in text
    rows = predicted(models["regression"], file, "--on-error", "skip")
    assert [float(row["prediction"]) for row in rows] == [3.0, 3.0]
    assert "1 row skipped" in capfd.readouterr().err
