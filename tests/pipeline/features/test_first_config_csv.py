"""What `init` writes for CSV that its cells alone do not explain, and what `run` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from pipeline.cli.cli import main
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.data.peek import peek

RANDOM = np.random.default_rng(0)


class First(NamedTuple):
    """What `init` wrote for a file, and printed."""

    config: PipelineConfig
    text: str
    printed: str

    def values(self, column: str) -> list[Any]:
        """Of a column, in rows' order, as `run` reads them; a missing one is left out."""
        seen = peek(self.config.data)
        assert seen is not None
        assert seen.sample is not None
        return seen.sample.values(column).values.to_pylist()

    def columns(self) -> dict[str, str]:
        """Column -> type, as `run` sees it."""
        seen = peek(self.config.data)
        assert seen is not None
        return dict(seen.columns)

    def used(self) -> set[str]:
        """The columns of the features."""
        return {name for group in self.config.features.groups for name in group.columns}


def first(folder: Path, capsys: Any, content: str, *arguments: str) -> First:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    output = folder / "rows.yaml"
    command = ["init", "--data", str(folder / "rows.csv"), "--output", str(output), *arguments]
    assert main(command) == 0, capsys.readouterr().err
    return First(load_config(output), output.read_text(encoding="utf-8"), capsys.readouterr().out)


def refusal(folder: Path, capsys: Any, content: str, *arguments: str) -> str:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    output = folder / "rows.yaml"
    command = ["init", "--data", str(folder / "rows.csv"), "--output", str(output), *arguments]
    assert main(command) == 2
    assert not output.exists()
    return capsys.readouterr().err


def lines_without_header() -> list[str]:
    return [
        f"{RANDOM.normal():.3f},{('x', 'y', 'z')[i % 3]},{RANDOM.normal() * 9:.2f}"
        for i in range(80)
    ]


def test_a_first_line_that_looks_like_data_is_asked_about(tmp_path, capsys):
    content = "\n".join(["657.7,x,2.5", *lines_without_header()])
    printed = refusal(tmp_path, capsys, content)
    assert f"{tmp_path / 'rows.csv'}: the first line looks like data: '657.7,x,2.5'" in printed
    assert "--no-header" in printed


def test_no_header_option_reads_a_file_without_a_header(tmp_path, capsys):
    lines = lines_without_header()
    found = first(tmp_path, capsys, "\n".join(lines), "--no-header")
    assert found.config.data.csv.header is False
    assert found.config.label.column == "column_3"
    assert found.used() == {"column_1", "column_2"}
    assert (
        "note: header: the first line is a row; columns are column_1 to column_3." in found.printed
    )
    assert "# header: the first line is a row" in found.text
    assert found.values("column_1") == pytest.approx(
        [float(line.split(",")[0]) for line in lines], abs=1e-6
    )


def test_header_option_reads_names_that_are_numbers(tmp_path, capsys):
    rows = [",".join(f"{value:.2f}" for value in row) for row in RANDOM.random((50, 3))]
    content = "\n".join(["1,2,3", *rows])
    found = first(tmp_path, capsys, content, "--header")
    assert found.config.data.csv.header is True
    assert set(found.columns()) == {"1", "2", "3"}


def test_only_csv_has_a_header(tmp_path, capsys):
    command = ["init", "--data", str(tmp_path / "rows.parquet"), "--no-header"]
    assert main(command) == 2
    assert "--no-header: only for CSV" in capsys.readouterr().err


def test_the_node_reads_what_the_look_at_the_data_does(tmp_path):
    """Without a header, with a word for missing values in one column, and amounts in another."""
    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    from components import ArrowExampleGen, CsvOptions
    from components.arrow_example_gen.executor import ReadRows, ReadTypes, open_input

    (tmp_path / "rows.csv").write_text('"$1,234",x,2.520\n($6),y,948\nn/a,n/a,-1.234.567\n')
    options = CsvOptions.model_validate(
        {
            "header": False,
            "missing_in": {"column_1": ["n/a"]},
            "formatted": {
                "column_1": {"unit": "$", "thousands": ","},
                "column_3": {"thousands": ".", "decimal": ","},
            },
        }
    )
    node = ArrowExampleGen(input_base=str(tmp_path), csv=options)
    table = open_input(dict(node.exec_properties), "rows.csv")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        types = pipeline | "Types" >> ReadTypes(table)
        batches = pipeline | "Rows" >> ReadRows(table, types)
        columns = batches | beam.Map(lambda rows: rows[1].to_pydict())
        expected = {
            "column_1": [[1234], [-6], []],
            "column_2": [[b"x"], [b"y"], [b"n/a"]],
            "column_3": [[2520], [948], [-1234567]],
        }
        assert_that(columns, equal_to([expected]))


def table(**columns: list[str]) -> str:
    """CSV of quoted cells, with a feature of plain numbers before and a class behind."""
    rows = len(next(iter(columns.values())))
    lines = [",".join(["n", *columns, "kind"])]
    for i, cells in enumerate(zip(*columns.values(), strict=True)):
        quoted = ",".join(f'"{cell}"' for cell in cells)
        lines.append(f"{RANDOM.normal():.3f},{quoted},{'abc'[i % 3]}")
    assert len(lines) == rows + 1
    return "\n".join(lines) + "\n"


def amounts(rows: int = 60) -> np.ndarray:
    return RANDOM.uniform(-20_000, 90_000, rows).round(2)


def english(value: float, sign: str = "$") -> str:
    return f"-{sign}{-value:,.2f}" if value < 0 else f"{sign}{value:,.2f}"


def german(value: float) -> str:
    return f"{value:,.2f} €".translate(str.maketrans(",.", ".,"))


def accounting(value: float) -> str:
    return f"({-value:,.2f})" if value < 0 else f"{value:,.2f}"


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (english, {"unit": "$", "thousands": ","}),
        (german, {"unit": "€", "thousands": ".", "decimal": ","}),
        (accounting, {"thousands": ","}),
        (lambda value: f"{value:.1f}%", {"unit": "%"}),
        (lambda value: f"{value:,.2f}".replace(",", "\u00a0"), {"thousands": " "}),
        (lambda value: f"CHF {value:,.2f}".replace(",", "'"), {"unit": "CHF", "thousands": "'"}),
        (lambda value: f"{value:,.2f} £", {"unit": "£", "thousands": ","}),
        (lambda value: f"({abs(value):.2f})", {}),
    ],
    ids=["dollars", "euros", "accounting", "percent", "spaces", "francs", "pounds", "negative"],
)
def test_numbers_for_people_become_numbers(tmp_path, capsys, write, form):
    """Reference: the numbers that were written, as float32 holds them."""
    values = amounts()
    texts = [write(value) for value in values]
    found = first(tmp_path, capsys, table(amount=texts))
    (written,) = found.config.data.csv.formatted.values()
    assert written.model_dump(exclude_defaults=True) == form
    assert found.columns()["amount"] == "float"
    assert "amount" in found.used()
    wanted = [-abs(v) for v in values] if texts[0] == f"({abs(values[0]):.2f})" else values
    if texts[0].endswith("%"):
        wanted = [float(text[:-1]) for text in texts]
    assert found.values("amount") == pytest.approx(wanted)
    assert f"note: formatted: 'amount' writes numbers as {texts[0]}" in found.printed
    assert "# formatted: 'amount' writes" in found.text


def test_the_label_may_be_written_so(tmp_path, capsys):
    values = amounts()
    found = first(tmp_path, capsys, table(price=[english(v) for v in values]), "--label", "price")
    assert found.config.label.kind == "regression"
    assert found.values("price") == pytest.approx(values)


def test_whole_numbers_in_groups_are_ints(tmp_path, capsys):
    values = [int(value) for value in RANDOM.integers(0, 10**7, 60)]
    found = first(tmp_path, capsys, table(visitors=[f"{value:,}" for value in values]))
    assert found.columns()["visitors"] == "int"
    assert found.values("visitors") == values


@pytest.mark.parametrize(
    "texts",
    [
        ["1,2,3", "4,5", "7", "8,9,10,11"],
        ["612 345 678", "555 444 333"],
        ["1.2.3", "2.0.1", "10.4.2"],
        ["01234", "99821", "10115"],
        ["+49 30 1234567", "555-1234"],
        ["192.168.0.1", "10.0.0.1"],
        ["A12", "B7"],
        ["12kg", "15kg"],
    ],
    ids=["lists", "phones", "versions", "zip", "more phones", "addresses", "codes", "weights"],
)
def test_what_looks_like_numbers_stays_text(tmp_path, capsys, texts):
    found = first(tmp_path, capsys, table(entry=texts * 15))  # a name that says nothing
    assert found.columns()["entry"] == "string"
    assert not found.config.data.csv.formatted


@pytest.mark.parametrize("wrong", ["1,23,4", "€5", "5%", "3 or 4"])
def test_one_number_of_another_form_keeps_the_column_text_and_is_reported(tmp_path, capsys, wrong):
    texts = [english(value) for value in amounts()]
    found = first(tmp_path, capsys, table(amount=[*texts, wrong, "", ""]))
    assert found.columns()["amount"] == "string"
    assert "warning: column 'amount' has" in found.printed
    assert [each.column for each in found.config.warnings] == ["amount"]
    assert wrong in found.printed or "($ and" in found.printed


def test_a_mark_that_may_be_either_is_asked_about(tmp_path, capsys):
    found = first(tmp_path, capsys, table(price=["1.234 €", "2.500 €", "7 €"] * 20))
    assert found.columns()["price"] == "string"
    assert "has numbers like 1.234 €" in found.printed
    lines = ["price;rate", *(f"{1 + i % 9}.{i:03d} €;{i},5" for i in range(100, 180))]
    found = first(tmp_path, capsys, "\n".join(lines), "--force")
    assert found.columns() == {"price": "int", "rate": "float"}
    assert found.values("price") == [(1 + i % 9) * 1000 + i for i in range(100, 180)]


@pytest.mark.parametrize(
    ("odd", "is_noted"),
    [
        ("2,345", True),
        ("2", True),  # whole numbers below 1,000 have no separator
        ("2,5", False),  # a decimal comma
        ("0,345", False),  # no group of thousands begins with 0
        ("2,3456", False),
    ],
)
def test_a_comma_that_may_be_one_of_thousands_is_noted(tmp_path, capsys, odd, is_noted):
    rows = [f"{1 + i % 9},{100 + i};{i % 2}" for i in range(59)]
    content = "\n".join(["price;sold", *rows, f"{odd};1"])
    found = first(tmp_path, capsys, content, "--label", "sold")
    note = "warning: column 'price' has numbers like 1,100, which is read as 1.100. If its mark"
    assert (note in found.printed) == is_noted
    assert found.values("price")[0] == np.float32(1.1)
    if is_noted:  # the fix that the note gives reads them so
        fix = "data.csv.formatted={price: {thousands: ','}}"
        seen = peek(load_config(tmp_path / "rows.yaml", [fix]).data)
        assert seen is not None
        assert seen.sample is not None
        assert seen.sample.values("price").values.to_pylist()[0] == 1100


@pytest.mark.parametrize("signs", ["plain", "negative"])
@pytest.mark.parametrize(
    ("delimiter", "mark"),
    [(";", "."), ("\t", "."), (",", "."), ("|", "."), (";", ","), ("\t", ",")],
)
def test_thousands_that_the_numbers_show(tmp_path, capsys, delimiter, mark, signs):
    """Numbers below 1,000 and zeros at the end exclude decimals, in a feature and in the label."""
    low = 0 if signs == "plain" else -3_000
    values, goals = (RANDOM.integers(low, high, 80).tolist() for high in (5_000, 2_000_000))
    lines = [
        delimiter.join([f"{v:,}".replace(",", mark), f"{g:,}".replace(",", mark), "ab"[v % 2]])
        for v, g in zip(values, [*goals[:76], 7, 12, 340, 1_230], strict=True)
    ]
    lines[5] = f"n/a{lines[5][lines[5].index(delimiter) :]}"
    content = "\n".join([delimiter.join(["cases", "sum", "town"]), *lines])
    found = first(tmp_path, capsys, content, "--label", "sum")
    assert found.config.label.kind == "regression"
    assert found.columns() == {"cases": "int", "sum": "int", "town": "string"}
    assert found.values("cases") == values[:5] + values[6:]
    assert found.values("sum")[-4:] == [7, 12, 340, 1_230]
    assert "note: formatted: 'cases' writes numbers as" in found.printed
    assert "numbers as n/a" not in found.printed


@pytest.mark.parametrize(
    ("delimiter", "cells", "read", "note"),
    [
        (";", ["1.200", "45.300"], b"1.200", "column 'price' has numbers like 1.200"),
        ("\t", ["1.200", "45.300"], b"1.200", "column 'price' has numbers like 1.200"),
        (",", ["1.200", "45.300"], 1.2, "column 'price' has numbers like 1.200, which is read"),
        (";", ["1.201", "45"], b"1.201", "column 'price' has numbers like 1.201"),
        (";", ["1.200", "4530"], 1.2, ""),  # in thousands it would be 4.530
        (";", ["1.200", "0.300"], 1.2, ""),
        (";", ["1.200", "45.30"], 1.2, ""),
        (";", ["1.200;0.5", "45.300;1.5"], 1.2, ""),  # another column has decimal points
        (",", ["1.200,0.5", "45.300,1.5"], 1.2, ""),
        (";", ["1.200;1.000.000", "45.300;1.500"], 1200, ""),  # another one has thousands
        (";", ["1.200;0.5", "45;1.5"], b"1.200", "column 'price' has numbers like 1.200"),
        (",", ["1.200,0.5", "45,1.5"], b"1.200", "column 'price' has numbers like 1.200"),
    ],
)
def test_marks_that_nothing_decides(tmp_path, capsys, delimiter, cells, read, note):
    """The note has the setting that reads the column as thousands."""
    more = delimiter in cells[0]
    header = delimiter.join(["price", *(["rate"] if more else []), "sold"])
    rows = [f"{cells[i % 3 == 2]}{delimiter}{'ab'[i % 2]}" for i in range(60)]
    found = first(tmp_path, capsys, "\n".join([header, *rows]), "--label", "sold")
    assert found.values("price")[0] == (read if isinstance(read, bytes) else np.float32(read))
    for printed in (found.printed, " ".join(map(str, found.config.warnings))):
        assert note in printed
        assert ("may be decimal or separate" in printed) == (bool(note) and "which" not in note)
        assert ("If its mark separates" in printed) == ("which" in note)
    if note:
        fix = 'data.csv.formatted={"price": {"thousands": ".", "decimal": ","}}'
        assert fix.replace("=", ": ") in found.printed
        changes = [fix, "data.csv.text=[]"]
        seen = peek(load_config(tmp_path / "rows.yaml", changes).data)
        assert seen is not None
        assert seen.sample is not None
        assert seen.sample.values("price").values.to_pylist()[0] in (1200, 1201)


def test_a_label_whose_mark_nothing_decides(tmp_path, capsys):
    rows = [f"{100 + i}.{i:03d};{i % 7}" for i in range(60)]
    error = refusal(tmp_path, capsys, "\n".join(["price;n", *rows]), "--label", "price")
    assert "60 different texts" in error
    assert 'data.csv.formatted: {"price": {"thousands": ".", "decimal": ","}}' in error


def test_points_beside_decimal_commas_are_of_thousands(tmp_path, capsys):
    lines = [
        "sales;rate;kind",
        *(f"{1 + i % 9}.{i:03d};{i},5;{'ab'[i % 2]}" for i in range(100, 180)),
    ]
    found = first(tmp_path, capsys, "\n".join(lines))
    assert found.values("sales") == [(1 + i % 9) * 1000 + i for i in range(100, 180)]
    assert found.values("rate") == [i + 0.5 for i in range(100, 180)]


def test_rare_words_among_numbers_and_dates_are_missing_values(tmp_path, capsys):
    """Each word with its count, in the terminal and the YAML; only in its own column."""
    numbers = [f"{value:.2f}" for value in amounts(300)]
    days = [f"{1 + i % 28:02d}.{1 + i % 12:02d}.20{10 + i % 9}" for i in range(300)]
    towns = ["unknown", "Oslo", "Moss", "see note"] * 75
    for place, word in {3: "n/a", 50: "unknown", 51: "unknown", 90: "see note", 299: "<5"}.items():
        numbers[place] = word
    for place in range(20, 34):
        days[place] = "unknown"
    found = first(tmp_path, capsys, table(size=numbers, day=days, town=towns))
    assert found.config.data.csv.missing_in == {
        "size": ("n/a", "unknown", "see note", "<5"),
        "day": ("unknown",),
    }
    for printed in (found.printed, found.text):
        assert "'unknown' (2), 'n/a' (1), 'see note' (1), '<5' (1) among the 295 numbers" in printed
        assert "missing_in: 'unknown' (14) among the 286 dates of 'day': no value." in printed
    assert found.columns() == {
        "n": "float", "size": "float", "day": "string", "town": "string", "kind": "string"
    }  # fmt: skip
    wanted = [float(text) for text in numbers if text[-1].isdigit() and text != "<5"]
    assert found.values("size") == pytest.approx(wanted)
    assert found.values("town") == [town.encode() for town in towns]
    assert {"size", "day", "town"} <= found.used()
    groups = {group.columns[0]: group for group in found.config.features.groups}
    assert "date" in str(groups["day"].encode)


def test_rare_words_among_amounts(tmp_path, capsys):
    values = amounts(100)
    texts = [english(value) for value in values[:95]] + ["call us", "unknown", "-", "n/a", "TBD"]
    found = first(tmp_path, capsys, table(price=texts))
    assert set(found.config.data.csv.missing_in["price"]) == set(texts[95:])
    assert found.values("price") == pytest.approx(values[:95])


@pytest.mark.parametrize("kind", ["numbers", "dates"])
@pytest.mark.parametrize("share", [0.3, 0.15])
def test_a_word_that_means_something_keeps_the_column_text_and_is_reported(
    tmp_path, capsys, kind, share
):
    count = int(200 * share)
    texts = [f"{value:.2f}" for value in amounts(200)]
    if kind == "dates":
        texts = [f"2020-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(200)]
    texts[:count] = ["free"] * count
    found = first(tmp_path, capsys, table(price=texts))
    assert found.columns()["price"] == "string"
    assert not found.config.data.csv.missing_in
    printed = f"'price' has texts among its {kind}, 'free' in {count} of 200 cells: it stays text."
    assert printed in found.printed
    assert printed in str(found.config.warnings[0])


def test_words_that_say_nothing_may_be_many(tmp_path, capsys):
    texts = [f"{value:.2f}" for value in amounts(100)]
    texts[:40] = ["n/a"] * 30 + ["-"] * 10
    found = first(tmp_path, capsys, table(price=texts))
    assert found.columns()["price"] == "float"


def test_codes_among_numbers_are_no_missing_values(tmp_path, capsys):
    texts = [str(i % 90) for i in range(200)]
    texts[7] = "12a"
    found = first(tmp_path, capsys, table(house=texts))
    assert found.columns()["house"] == "string"
    assert found.config.data.csv.text == ("house",)


def test_many_different_codes_among_numbers_are_reported(tmp_path, capsys):
    texts = [f"{value:.2f}" for value in amounts(2_000)]
    texts[100:150] = [f"X{i}" for i in range(50)]
    found = first(tmp_path, capsys, table(item=texts))
    assert found.columns()["item"] == "string"
    printed = (
        "'item' has texts among its numbers, 'X0' and others in 50 of 2,000 cells: it stays text"
    )
    assert printed in found.printed


@pytest.mark.slow
def test_a_rare_word_far_behind_is_found(tmp_path, capsys):
    """Beyond the rows that a look at the data reads, in the last of 200,001."""
    texts = [f"{i % 1000 / 8}" for i in range(200_000)]
    days = [f"2020-01-{1 + i % 28:02d}" for i in range(200_000)]
    content = table(size=[*texts, "unknown"], day=[*days, "0000-00-00"])
    found = first(tmp_path, capsys, content)
    assert found.config.data.csv.missing_in == {"size": ("unknown",), "day": ("0000-00-00",)}
    assert {"size", "day"} <= found.used()
