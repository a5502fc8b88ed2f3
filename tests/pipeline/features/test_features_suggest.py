"""`features suggest` on data of three kinds, its YAML checked and run through Transform."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from pipeline import load_config
from pipeline.cli.cli import main
from pipeline.features.features_suggest import LeftOut, show_left_out
from pipeline.preflight import preflight
from transform import FeatureSpec

TAXI = "package://tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "normalisation.md"
ROWS = 600


def write_csv(file: Path, columns: dict[str, Any]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        stream.write(",".join(columns) + "\n")
        writer.writerows(zip(*columns.values(), strict=True))
    return file


def made_up() -> dict[str, Any]:
    rng = np.random.default_rng(9)
    index = np.arange(ROWS)
    amount = rng.lognormal(1.0, 1.0, ROWS)
    return {
        "customer_id": index + 1000,
        "always": ["x"] * ROWS,
        "nothing": [""] * ROWS,
        "price [EUR]": [f"{v:.2f}" for v in amount],  # brackets: no glob, as it is a name
        "others": rng.normal(0.0, 1.0, ROWS).round(3),
        "temperature": ["nan" if i % 20 == 3 else f"{v:.1f}" for i, v in
                        enumerate(rng.normal(15.0, 4.0, ROWS))],
        "spike": np.where(index == 5, 1e6, rng.normal(0.0, 1.0, ROWS)).round(4),
        "true?": ["yes" if i % 3 else "no" for i in index],
        "city": ["" if i % 9 == 0 else f"city {i % 17}" for i in index],
        "note": [f"order {i}, by phone" for i in index],
        "ordered": [f"2024-{1 + i % 12:02}-{1 + i % 28:02}T{i % 24:02}:30:00Z" for i in index],
        "seen": 1_700_000_000 + 5_000 * rng.integers(0, 10_000, ROWS),
        "number": ["N/A" if i % 50 == 0 else f"{i % 77}.25" for i in index],
        "serial": [2**63 + int(i) // 9 for i in index],
        "shard": [2**63 if i % 3 == 1 else int(i) % 3 for i in index],
        "flag": (index % 2),
        "bought": (amount * rng.lognormal(0.0, 0.5, ROWS) > 3).astype(int),
    }  # fmt: skip


def bundled(name: str) -> dict[str, Any]:
    """A data set that comes with scikit-learn."""
    import sklearn.datasets

    data = getattr(sklearn.datasets, f"load_{name}")()
    names = [feature.replace(",", "") for feature in data.feature_names]
    return {**dict(zip(names, data.data.T, strict=True)), "target": data.target}


@pytest.fixture
def suggested(tmp_path: Path, capfd: Any) -> Any:
    """`suggested(path, label)`: the text, and the section as a spec."""

    def run(path: str | Path, label: str | None) -> tuple[str, FeatureSpec]:
        arguments = ["features", "suggest", "--data", str(path)]
        assert main([*arguments, *(["--label", label] if label else [])]) == 0
        text = capfd.readouterr().out
        return text, FeatureSpec.model_validate(yaml.safe_load(text)["features"])

    return run


def group_of(spec: FeatureSpec, column: str) -> Any:
    (group,) = (g for g in spec.groups if column in g.columns)
    return group


def whole_configuration(features: str, data: str, folder: Path) -> Path:
    """A pipeline's YAML around a suggestion."""
    rest = {
        "name": "suggested",
        "data": {"path": data},
        "training": {"global_batch_size": 20, "epochs": 1},
        "output": {"folder": str(folder / "out")},
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(rest) + features, encoding="utf-8")
    return file


def test_cells_are_read_as_by_init(suggested: Any, tmp_path: Path) -> None:
    """A mark that may separate thousands, and one that must; the options are those of `init`."""
    cells = [f"{2_000 + 7 * i:,}".replace(",", ".") if i % 3 else str(i) for i in range(300)]
    file = tmp_path / "t.csv"
    for decimal, option in (
        (".", "text: [cases]"),
        (",", "formatted: {x: {decimal: ','}, cases: {th"),
    ):
        rows = [f"{cell};{i % 7}{decimal}5;{i % 3 // 2}" for i, cell in enumerate(cells)]
        file.write_text("\n".join(["cases;x;y", *rows]))
        text, _ = suggested(file, "y")
        assert f"# data: {{csv: {{{option}" in text


def test_the_page_shows_what_it_writes(suggested: Any) -> None:
    text, _ = suggested(TAXI, "trip_miles")
    (groups,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"(?: {4}#.*\n)+(?: {4,}[^#\n]*\n)+", groups)
    assert len(found) == 2
    assert [group for group in found if group not in text] == []


def test_taxi_rides(suggested: Any, tmp_path: Path) -> None:
    text, spec = suggested(TAXI, "tips")
    assert spec.label is not None
    assert (spec.label.column, spec.label.kind) == ("tips", "regression")
    assert group_of(spec, "trip_miles").scale == "power"
    assert group_of(spec, "payment_type").encode.one_hot is not None
    assert group_of(spec, "company").encode.vocabulary is not None
    assert group_of(spec, "trip_start_hour").encode.integer.size == 24
    parts = group_of(spec, "trip_start_timestamp").encode.date.parts
    assert parts == ("weekday", "year")
    dropped = "without hour, day, month"
    assert dropped in " ".join(text.replace("#", "").split())
    assert group_of(spec, "dropoff_latitude").missing_indicator
    assert "pickup_census_tract: 100.0% of the rows have no value" in text
    assert "fare: skew +0.74; median 7.85, 99 % below 45.25, largest 700.1" in text
    preflight.check(load_config(whole_configuration(text, TAXI, tmp_path)))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("wine", "multiclass"), ("breast_cancer", "binary"), ("diabetes", "regression")],
)
def test_bundled_measurements(suggested: Any, tmp_path: Path, name: str, kind: str) -> None:
    columns = bundled(name)
    file = write_csv(tmp_path / f"{name}.csv", columns)
    text, spec = suggested(file, "target")
    assert spec.label is not None
    assert spec.label.kind == kind
    used = {column for group in spec.groups for column in group.columns}
    assert used == set(columns) - {"target"}
    preflight.check(load_config(whole_configuration(text, str(file), tmp_path)))


def test_a_made_up_mixture(suggested: Any, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "shop.csv", made_up())
    text, spec = suggested(file, "bought")
    left_out = text.partition("# Left out:")[2]
    for column in ("customer_id", "always", "nothing", "note"):
        assert f"#   {column}: " in left_out
    text_on_one_line = " ".join(text.replace("#", "").split())
    why = "text because 9223372036854775808 is beyond int64 (-2^63 to 2^63 - 1)"
    assert f"serial: 67 whole numbers, {why}" in text_on_one_line
    assert re.search(
        rf"shard: 3 values, most often '\d+' \(33%\); {re.escape(why)}", text_on_one_line
    )
    assert group_of(spec, "price [EUR]").scale == ("log1p", "z_score")
    assert group_of(spec, "other[s]").scale == "z_score"
    assert group_of(spec, "temperature").missing_indicator
    assert group_of(spec, "spike").clip.quantiles == (0.01, 0.99)
    assert group_of(spec, "true?").encode.one_hot.values == ("yes", "no")
    assert group_of(spec, "ordered").encode.date.parts == ("hour", "weekday", "day", "month")
    assert group_of(spec, "seen").encode.date is not None
    preflight.check(load_config(whole_configuration(text, str(file), tmp_path)))


def test_every_group_says_why_with_numbers(suggested: Any, tmp_path: Path) -> None:
    text, spec = suggested(write_csv(tmp_path / "shop.csv", made_up()), None)
    above = re.findall(r"((?: +#.*\n)+) +- name: (.*)\n", text)
    assert [yaml.safe_load(name) for _, name in above] == [g.name for g in spec.groups]
    for comment, _ in above:
        assert re.search(r"\d", comment)
    assert max(map(len, text.splitlines()[2:])) <= 100


@pytest.mark.slow
def test_parquet_and_tfrecord_say_the_same(suggested: Any, tmp_path: Path) -> None:
    """Reference: the suggestion for the CSV of the same rows."""
    import pyarrow as pa
    import pyarrow.parquet
    import tensorflow as tf

    rows = {
        "town": [f"t{i % 20}" for i in range(ROWS)],
        "area": [float(i % 97) for i in range(ROWS)],
    }
    write_csv(tmp_path / "a.csv", rows)
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for town, area in zip(rows["town"], rows["area"], strict=True):
            example = tf.train.Example()
            example.features.feature["town"].bytes_list.value.append(town.encode())
            example.features.feature["area"].float_list.value.append(area)
            writer.write(example.SerializeToString())
    texts = [
        suggested(tmp_path / f"a.{ending}", None)[0].partition("\n")[2]
        for ending in ("csv", "parquet")
    ]
    _, tfrecord = suggested(tmp_path / "a.tfrecord", None)
    _, reference = suggested(tmp_path / "a.csv", None)
    assert texts[0] == texts[1]
    assert {g.columns: g.kind for g in tfrecord.groups} == {
        g.columns: g.kind for g in reference.groups
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--data", "none.csv"],
            "--data=none.csv: no such file. Relative paths start at the work",
        ),
        (["--data", "empty.csv"], "empty.csv is empty (0 bytes)"),
        (["--data", "header.csv"], "--data: no rows below the header line"),
        (["--data", "rows.data"], "rows.data: unknown format; add --source"),
        (["--data", "rows.csv", "--label", "pric"], "not in rows.csv; did you mean 'price'?"),
        (["--data", "rows.csv", "--label", "same"], "--label=same: constant, nothing can be"),
        (["--data", "same.csv"], "no column is usable as a feature (same: constant: always 1)"),
        (["--data", "label.csv", "--label", "y"], "as a feature (y is its only column)"),
        (["--data", "rows.csv", "--source", "parquet"], "Set --source to its format"),
        (["--data", "rows.csv", "--output", "rows.data"], "rows.data: exists. Name another file"),
    ],
)
def test_bad_input_is_an_error(
    tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i}.5,1\n" for i in range(30))
    (tmp_path / "rows.csv").write_text("price,same\n" + rows)
    (tmp_path / "rows.data").write_text("kept")
    (tmp_path / "same.csv").write_text("same\n1\n1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "label.csv").write_text("y\n" + "0\n1\n" * 20)
    (tmp_path / "header.csv").write_text("a,b\n")
    assert main(["features", "suggest", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "rows.data").read_text() == "kept"


def test_the_output_is_written_whole(tmp_path: Path, capsys: Any) -> None:
    file = write_csv(tmp_path / "shop.csv", made_up())
    output = tmp_path / "new" / "features.yaml"
    arguments = ["features", "suggest", "--data", str(file), "--output", str(output)]
    assert main(arguments) == 0
    first = output.read_text(encoding="utf-8")
    assert main(arguments) == 2
    assert main([*arguments, "--force"]) == 0
    assert output.read_text(encoding="utf-8") == first
    assert [p.name for p in output.parent.iterdir()] == ["features.yaml"]
    assert f"\n{output}: features of {file}" in capsys.readouterr().out


@pytest.mark.slow(60)
def test_a_suggestion_runs(suggested: Any, tmp_path: Path, capfd: Any) -> None:
    """To the end of a pipeline: texts, dates, missing and skewed numbers, a constant and ids."""
    file = write_csv(tmp_path / "shop.csv", made_up())
    text, spec = suggested(file, "bought")
    config = whole_configuration(text, str(file), tmp_path)
    command = [sys.executable, "-m", "pipeline", "run", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    capfd.readouterr()
    assert main(["features", "explain", "--config", str(config), "--json"]) == 0
    records = json.loads(capfd.readouterr().out)
    assert len(records) == sum(len(group.columns) for group in spec.groups)
    outputs = {name for record in records for name in record["outputs"]}
    assert {"ordered_hour", "temperature_missing", "true?=yes", "price [EUR]"} <= outputs
    (temperature,) = (record for record in records if record["column"] == "temperature")
    assert temperature["missing"] == pytest.approx(0.05, abs=0.03)  # of the train split


def test_what_is_left_out_is_printed_as_plain_lines() -> None:
    stream = io.StringIO()
    show_left_out([], stream)
    assert stream.getvalue() == ""
    names = ["[bold]price[/] :smile:", "\x1b[1mbold\n", *(f"c{i}" for i in range(118))]
    show_left_out([LeftOut(name, "many words " * 20) for name in names], stream)
    lines = stream.getvalue().splitlines()
    assert lines[1].startswith("[bold]price[/] :smile:: many words many words")
    assert max(map(len, lines)) <= 100
    assert all(character.isprintable() for line in lines for character in line)
    assert lines[-1] == "70 more: the YAML lists them"


def test_init_and_suggest_list_each_column(tmp_path, capsys) -> None:
    """What is left out by a rule, by a leak and by the measurements: the same rows as the YAML."""
    n = 120
    frame = pd.DataFrame(
        {
            "size": [(i * 37 % 101) / 7 for i in range(n)],
            "empty": [None] * n,
            "same": ["x"] * n,
            "note": [f"called at {i}, said {i * 7}" for i in range(n)],
            "sold": [i * 13 % 7 % 2 for i in range(n)],
        }
    )
    frame["copy"] = frame["sold"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    data, output = str(tmp_path / "t.csv"), str(tmp_path / "t.yaml")
    for command in (
        ["init", "--data", data, "--label", "sold", "--output", output],
        ["features", "suggest", "--data", data, "--label", "sold", "--output", output, "--force"],
    ):
        assert main(command) == 0
        printed = capsys.readouterr().out
        table = printed[printed.index("left out") : printed.index(f"{output}: ")].splitlines()
        columns = [line.split()[0] for line in table if not line.startswith(" ")]
        assert columns == ["left", "empty:", "same:", "note:", "copy:"]
        assert "no row has a value" in table[1]
