"""The features that `init` chooses for data of three kinds, its YAML run to the end."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import run_here

from pipeline import load_config
from pipeline.cli.cli import main
from pipeline.features.features_explain import explain_columns
from pipeline.features.suggestion import LeftOut, show_left_out
from pipeline.report.records import latest_run_of
from transform import FeatureSpec

TAXI = "package://tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "normalisation.md"
ROWS = 600


def write_csv(file: Path, columns: dict[str, Any]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        stream.write(",".join(columns) + "\n")
        csv.writer(stream).writerows(zip(*columns.values(), strict=True))
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


@pytest.fixture
def init(tmp_path: Path, capfd: Any) -> Any:
    """`init(path, label)`: the text of the YAML in `tmp_path / "t.yaml"`, and its features."""

    def run(path: str | Path, label: str) -> tuple[str, FeatureSpec]:
        output = tmp_path / "t.yaml"
        command = ["init", str(path), "--label", label, "--output", str(output), "--force"]
        assert main(command) == 0, capfd.readouterr().err
        return output.read_text(encoding="utf-8"), load_config(output).features

    return run


def group_of(spec: FeatureSpec, column: str) -> Any:
    (group,) = (g for g in spec.groups if column in g.columns)
    return group


def test_the_page_shows_what_it_writes(init: Any) -> None:
    text, _ = init(TAXI, "trip_miles")
    (groups,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    shown = re.findall(r"(?: {4}#.*\n)+(?: {4,}[^#\n]*\n)+", groups)
    assert len(shown) == 2
    assert [group for group in shown if group not in text] == []


def test_taxi_rides(init: Any) -> None:
    text, spec = init(TAXI, "tips")
    assert spec.label is not None
    assert (spec.label.column, spec.label.kind) == ("tips", "regression")
    assert group_of(spec, "trip_miles").scale == "gaussian"
    assert group_of(spec, "payment_type").encode.one_hot is not None
    assert group_of(spec, "company").encode.vocabulary is not None
    assert group_of(spec, "trip_start_hour").encode.integer.size == 24
    assert group_of(spec, "trip_start_timestamp").encode.date.parts == (
        *("hour", "weekday", "day", "month", "year"),
    )
    assert group_of(spec, "dropoff_latitude").missing_indicator
    assert "pickup_census_tract: 100.0% of the rows have no value" in text
    assert "fare: skew +0.74; median 7.85, 99 % below 45.25, largest 700.1" in text


def test_a_made_up_mixture(init: Any, tmp_path: Path) -> None:
    text, spec = init(write_csv(tmp_path / "shop.csv", made_up()), "bought")
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
    above = re.findall(r"((?: +#.*\n)+) +- name: (.*)\n", text)
    assert [yaml.safe_load(name) for _, name in above] == [g.name for g in spec.groups]
    assert all(re.search(r"\d", comment) for comment, _ in above)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("none.csv", "--data=none.csv: no such file. Relative paths start at the work"),
        ("empty.csv", "empty.csv is empty (0 bytes)"),
        ("header.csv", "--data: no rows below the header line"),
        ("rows.data", "rows.data: unknown format; add --source"),
        ("rows.csv --label pric", "not in rows.csv; did you mean 'price'?"),
        ("rows.csv --label same", "--label=same: constant, nothing can be"),
        ("rows.csv --label price", "no column is usable as a feature (same: constant: always 1)"),
        ("label.csv --label y", "as a feature (y is its only column)"),
        ("rows.csv --source parquet", "Set --source to its format"),
        ("rows.csv --output rows.data", "rows.data: exists. Name another file"),
    ],
)
def test_bad_input_is_an_error(
    tmp_path: Path, monkeypatch: Any, capsys: Any, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i}.5,1\n" for i in range(30))
    (tmp_path / "rows.csv").write_text("price,same\n" + rows)
    (tmp_path / "rows.data").write_text("kept")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "label.csv").write_text("y\n" + "0\n1\n" * 20)
    (tmp_path / "header.csv").write_text("a,b\n")
    assert main(["init", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "rows.data").read_text() == "kept"


@pytest.mark.pipelines
def test_a_suggestion_runs(init: Any, tmp_path: Path) -> None:
    """To the end of a pipeline: texts, dates, missing and skewed numbers, a constant and ids."""
    _, spec = init(write_csv(tmp_path / "shop.csv", made_up()), "bought")
    file = tmp_path / "t.yaml"
    done = run_here("run", file, "--set=training.epochs=1")
    assert done.code == 0, done.output
    records = latest_run_of(load_config(file))
    explained = {each.chain.column: each for each in explain_columns(records)}
    assert len(explained) == sum(len(group.columns) for group in spec.groups)
    outputs = {name for each in explained.values() for name in each.chain.outputs}
    assert {"ordered_hour", "temperature_missing", "true?=yes", "price [EUR]"} <= outputs
    assert explained["temperature"].missing == pytest.approx(0.05, abs=0.03)  # of the train split


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
