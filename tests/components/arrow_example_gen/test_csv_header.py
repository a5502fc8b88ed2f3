"""A first line of CSV that is a row: where it is asked about, and where it is not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from components import CsvOptions
from components.arrow_example_gen.csv_header import _looks_like_data, read_header
from components.arrow_example_gen.csv_table import open_table

RANDOM = np.random.default_rng(0)
LETTERS = ["x", "y", "z", "x", "y", "z"]
NUMBERS = pd.DataFrame(RANDOM.normal(size=(6, 3)))


def rows_of(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()]


def wide(names: list, index: list | None = None, **columns: list) -> str:
    frame = pd.DataFrame(RANDOM.normal(size=(6, len(names))).round(3), columns=names, index=index)
    for place, (name, values) in enumerate(columns.items()):
        frame.insert(place, name, values)
    return frame.to_csv(index=index is not None)


DATA = {
    "numbers": "5.1,3.5\n4.9,3.0\n",
    "beside classes": "5.1,3.5,setosa\n4.9,3.0,setosa\n7,3.2,versicolor\n",
    "dates with times": "05.01.2020 12:30,x\n06.01.2020 13:45,y\n",
    "an empty first cell": ",5,1.5\n3,6,2.5\n7,7,3.5\n",
    "repeated": "1,1,0\n0,1,1\n",
    "years below years": "2001,2002,2003\n2002,2003,2004\n2011,2012,2013\n",
    "a rare word below": "5,x\n6,y\nsee note,z\n" + "7,x\n" * 40,
}

NAMES = {
    "texts": "a,b\n1,x\n",
    "an index and whole numbers": NUMBERS.to_csv(),
    "an index of dates": wide([0, 1], index=[f"2020-01-0{i}" for i in range(1, 7)]),
    "years": wide([2019, 2020, 2021]),
    "years of countries": wide([2019, 2020, 2021], country=LETTERS, unit=LETTERS),
    "a year and a name": wide([2020], country=LETTERS, age=[1, 2, 3, 4, 5, 6]),
    "days": wide(["2020-01-01", "2020-01-02"], country=LETTERS),
    "no rows": "a,1\n",
    "wide, and the first row is cut": ",".join(map(str, range(12_000))) + "\n0.123456" * 9,
}


def header_of(folder: Path, text: str, **options: Any) -> Any:
    (folder / "rows.csv").write_text(text)
    return read_header(str(folder / "rows.csv"), CsvOptions.model_validate(options))


def test_a_first_line_of_data_is_an_error(tmp_path):
    for case, text in DATA.items():
        with pytest.raises(ValueError, match="first line looks like data") as error:
            pytest.fail(f"{case}: {header_of(tmp_path, text)}")
        for part in (str(tmp_path / "rows.csv"), "header: false", "header: true", "--no-header"):
            assert part in str(error.value)


def test_honest_names_are_not_asked_about(tmp_path):
    for text in NAMES.values():
        header_of(tmp_path, text)


def test_the_line_is_shown_shortened(tmp_path):
    with pytest.raises(ValueError, match=r"'7,10,13,[^']*…'") as error:
        header_of(tmp_path, "\n".join([",".join(map(str, range(7, 900, 3)))] * 3))
    assert len(str(error.value)) < 400 + len(str(tmp_path))


def cells_of(file: Path, **options: Any) -> Any:
    (block,) = open_table([str(file)], CsvOptions.model_validate(options)).all_blocks()
    return block.cells.to_pydict()


def test_what_the_options_say_of_the_first_line(tmp_path):
    file = tmp_path / "rows.csv"
    for end in ("\n", "\r\n"):
        for before in ("", "\ufeff", "# about\n\n"):
            file.write_bytes(f"{before}5.1;x\n4.9;\n3;z\n".replace("\n", end).encode())
            assert cells_of(file, header=False, comment="#") == {
                "column_1": ["5.1", "4.9", "3"],
                "column_2": ["x", None, "z"],
            }
    file.write_text("1,2,3\n4,5,6\n")
    assert cells_of(file, header=True) == {"1": ["4"], "2": ["5"], "3": ["6"]}


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["5,x\n6\n"], {"header": False}, r"0\.csv, line 2: 1 cells under a first line of 2 col"),
        (["5,x\n", "5,x,7\n"], {"header": False}, r"1\.csv: its header differs .* column_3"),
        (["a,b\n5,x\n", "5,x\n6,y\n"], {}, r"1\.csv: the first line looks like data"),
        (["yes,yes\nno,yes\n"], {}, r"repeated: yes.*data\.csv\.header: false"),
    ],
)
def test_files_that_are_no_table(tmp_path, texts, options, message):
    files = [tmp_path / f"{i}.csv" for i in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(open_table(list(map(str, files)), CsvOptions.model_validate(options)).all_blocks())


NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_ ]{0,8}", fullmatch=True)


@given(
    names=st.lists(NAME, min_size=1, max_size=6),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=9),
)
def test_texts_above_numbers_are_names_and_rows_of_numbers_are_not(names, values):
    stream = io.StringIO()
    pd.DataFrame(dict.fromkeys(range(len(names)), values)).to_csv(stream, index=False, header=False)
    rows = rows_of(stream.getvalue())
    assert not _looks_like_data(names, rows)
    assert _looks_like_data(rows[0], rows[1:])
