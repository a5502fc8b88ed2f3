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


def test_a_header_is_asked_about_unless_it_is_said(tmp_path, capsys):
    lines = lines_without_header()
    printed = refusal(tmp_path, capsys, "\n".join(["657.7,x,2.5", *lines]))
    assert f"{tmp_path / 'rows.csv'}: the first line looks like data: '657.7,x,2.5'" in printed
    assert "--no-header" in printed
    written = first(tmp_path, capsys, "\n".join(lines), "--no-header")
    assert written.config.data.csv.header is False
    assert written.config.label.column == "column_3"
    assert written.used() == {"column_1", "column_2"}
    note = "header: the first line is a row; columns are column_1 to column_3."
    assert f"note: {note}" in written.printed
    assert f"# {note}" in written.text
    cells = [float(line.split(",")[0]) for line in lines]
    assert written.values("column_1") == pytest.approx(cells, abs=1e-6)
    rows = [",".join(f"{value:.2f}" for value in row) for row in RANDOM.random((50, 3))]
    written = first(tmp_path, capsys, "\n".join(["1,2,3", *rows]), "--header", "--force")
    assert written.config.data.csv.header is True
    assert set(written.columns()) == {"1", "2", "3"}
    assert main(["init", "--data", str(tmp_path / "rows.parquet"), "--no-header"]) == 2
    assert "--no-header: only for CSV" in capsys.readouterr().err


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


FORMS = {
    "dollars": (english, {"unit": "$", "thousands": ","}),
    "euros": (german, {"unit": "€", "thousands": ".", "decimal": ","}),
    "percent": (lambda value: f"{value:.2f}%", {"unit": "%"}),
    "visitors": (lambda value: f"{int(value):,}", {"thousands": ","}),
}


def test_numbers_for_people_become_numbers(tmp_path, capsys):
    """Reference: the numbers that were written, as float32 holds them; ints are whole."""
    values = {name: amounts() for name in FORMS}
    texts = {name: [write(value) for value in values[name]] for name, (write, _) in FORMS.items()}
    written = first(tmp_path, capsys, table(**texts), "--label", "dollars")
    assert written.config.label.kind == "regression"
    assert written.used() >= set(FORMS) - {"dollars"}
    for name, (_, form) in FORMS.items():
        options = written.config.data.csv.formatted[name]
        assert options.model_dump(exclude_defaults=True) == form
        is_int = name == "visitors"
        assert written.columns()[name] == ("int" if is_int else "float")
        numbers = [int(value) for value in values[name]] if is_int else values[name]
        assert written.values(name) == pytest.approx(numbers)
        assert f"note: formatted: '{name}' writes numbers as {texts[name][0]}" in written.printed
    assert "# formatted: 'euros' writes" in written.text


def test_what_looks_like_numbers_stays_text(tmp_path, capsys):
    columns = {  # names that say nothing
        "a": ["1,2,3", "4,5", "7", "8,9,10,11"],
        "c": ["1.2.3", "2.0.1", "10.4.2"],
        "d": ["01234", "99821", "10115"],
        "f": ["192.168.0.1", "10.0.0.1"],
    }
    cells = {name: [texts[i % len(texts)] for i in range(60)] for name, texts in columns.items()}
    written = first(tmp_path, capsys, table(**cells))
    assert {written.columns()[name] for name in columns} == {"string"}
    assert not written.config.data.csv.formatted


def test_one_number_of_another_form_keeps_the_column_text_and_is_reported(tmp_path, capsys):
    wrong, texts = "1,23,4", [english(value) for value in amounts()]
    found = first(tmp_path, capsys, table(amount=[*texts, wrong, "", ""]))
    assert found.columns()["amount"] == "string"
    assert "warning: column 'amount' has" in found.printed
    assert [each.column for each in found.config.warnings] == ["amount"]
    assert wrong in found.printed


@pytest.mark.parametrize(("delimiter", "mark", "low"), [(",", ".", 0), ("\t", ",", -3_000)])
def test_thousands_that_the_numbers_show(tmp_path, capsys, delimiter, mark, low):
    """Numbers below 1,000 and zeros at the end exclude decimals, in a feature and in the label."""
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
        (",", ["1.200", "45.300"], 1.2, "column 'price' has numbers like 1.200, which is read"),
        (";", ["1,200", "45,300"], 1.2, "column 'price' has numbers like 1,200, which is read"),
        (";", ["1.200", "4530"], 1.2, ""),  # in thousands it would be 4.530
        (";", ["1.200;1.000.000", "45.300;1.500"], 1200, ""),  # another one has thousands
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
        form = '{"thousands": ".", "decimal": ","}' if "." in cells[0] else '{"thousands": ","}'
        fix = f'data.csv.formatted={{"price": {form}}}'
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


def test_a_word_that_means_something_keeps_the_column_text_and_is_reported(tmp_path, capsys):
    texts = ["free"] * 60 + [f"{value:.2f}" for value in amounts(140)]
    found = first(tmp_path, capsys, table(price=texts))
    assert found.columns()["price"] == "string"
    assert not found.config.data.csv.missing_in
    printed = "'price' has texts among its numbers, 'free' in 60 of 200 cells: it stays text."
    assert printed in found.printed
    assert printed in str(found.config.warnings[0])


@pytest.mark.slow
def test_a_rare_word_far_behind_is_found(tmp_path, capsys):
    """Beyond the rows that a look at the data reads, in the last of 200,001."""
    texts = [f"{i % 1000 / 8}" for i in range(200_000)]
    days = [f"2020-01-{1 + i % 28:02d}" for i in range(200_000)]
    content = table(size=[*texts, "unknown"], day=[*days, "0000-00-00"])
    found = first(tmp_path, capsys, content)
    assert found.config.data.csv.missing_in == {"size": ("unknown",), "day": ("0000-00-00",)}
    assert {"size", "day"} <= found.used()
