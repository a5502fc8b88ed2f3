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
    assert not written.config.warnings


@pytest.mark.parametrize("cells", [["$1,234.50", "-$20"], ["1.234,50 €", "7 €"], ["23.4%", "5%"]])
def test_amounts_stay_text_and_are_reported(tmp_path, capsys, cells):
    found = first(tmp_path, capsys, table(amount=cells * 30))
    assert found.columns()["amount"] == "string"
    assert f"warning: column 'amount' has numbers like {cells[0]}: it stays text" in found.printed
    assert [each.column for each in found.config.warnings] == ["amount"]


def test_a_label_of_amounts_is_refused_with_the_fix(tmp_path, capsys):
    amounts = table(amount=[f"${i},000" for i in range(1, 61)])
    error = refusal(tmp_path, capsys, amounts, "--label", "amount")
    assert "60 different texts" in error
    assert "write them without currency" in error


@pytest.mark.parametrize(
    ("delimiter", "cells", "doubt"),
    [
        (";", ["4.268", "948"], "text"),  # decimals would not all have three digits
        (";", ["4,268", "948"], "text"),
        (";", ["4.268;2.5", "948;7.1"], "text"),  # decimals in another column change nothing
        (";", ["1.200", "45.300"], "text"),  # beside ; the decimal mark is usually a comma
        (",", ["1.200", "45.300"], "number"),
        (";", ["1,200", "45,300"], "number"),
        (";", ["1.200", "4530"], None),  # in thousands it would be 4.530
        (";", ["1,200;2,52", "45,300;7,1"], None),  # another column has decimals
    ],
)
def test_marks_that_may_separate_thousands(tmp_path, capsys, delimiter, cells, doubt):
    header = delimiter.join(["price", *(["rate"] if delimiter in cells[0] else []), "sold"])
    rows = [f"{cells[i % 3 == 2]}{delimiter}{'ab'[i % 2]}" for i in range(60)]
    found = first(tmp_path, capsys, "\n".join([header, *rows]), "--label", "sold")
    price = cells[0].partition(delimiter)[0]
    value = price.encode() if doubt == "text" else np.float32(price.replace(",", "."))
    assert found.values("price")[0] == value
    sentences = {
        "text": f"has numbers like {price}, whose mark may be decimal or separate thousands: it",
        "number": f"has numbers like {price}, which is read as 1.200",
    }
    for kind, sentence in sentences.items():
        assert (sentence in found.printed) == (kind == doubt)
    doubts = [each for each in found.config.warnings if "has numbers" in each.what]
    assert [each.column for each in doubts] == (["price"] if doubt else [])


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
