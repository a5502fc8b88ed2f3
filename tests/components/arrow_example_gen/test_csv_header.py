"""A first line of CSV that is a row: where it is asked about, and where it is not."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from components import CsvOptions
from components.arrow_example_gen.csv_header import looks_like_data, read_header
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
    "one column": "5\n7\n",
    "one line": "5.1,3.5\n",
    "three whole numbers": "1,2,3\n4,5,6\n",
    "beside classes": "5.1,3.5,setosa\n4.9,3.0,setosa\n7,3.2,versicolor\n",
    "a number among texts": "Braund,male,22\nCumings,female,38\n",
    "dates among texts": "2020-01-05,open\n2020-01-06,closed\n",
    "dates with times": "05.01.2020 12:30,x\n06.01.2020 13:45,y\n",
    "amounts": '$1234.50,x\n"$2,000",y\n',
    "percent": "23.4%,x\n12%,y\n",
    "in parentheses": "(12),x\n15,y\n",
    "an empty cell": "5,,x\n6,1,y\n",
    "an empty first cell": ",5,1.5\n3,6,2.5\n7,7,3.5\n",
    "repeated": "1,1,0\n0,1,1\n",
    "a missing word": "NA,5\n3,6\n2,7\n",
    "years below years": "2001,2002,2003\n2002,2003,2004\n2011,2012,2013\n",
    "a year below a year": "Ann,2001\nBob,1999\n",
    "a ramp": "1,2,3,4,5\n2,3,4,5,6\n1,2,3,4,5\n",
    "a rare word below": "5,x\n6,y\nsee note,z\n" + "7,x\n" * 40,
    "negative": "-1,x\n-2,y\n",
    "scientific": "1e-5,x\n2e5,y\n",
    "decimal commas": "1,x\n2,y\n",
}

NAMES = {
    "texts": "a,b\n1,x\n",
    "texts alone": "yes,no\nno,yes\n",
    "an index": ",size\n0,5\n1,6\n",
    "one name": "id,2,4\n1,5,6\n2,7,8\n",
    "an index and whole numbers": NUMBERS.to_csv(),
    "a series": NUMBERS[0].to_csv(),
    "an index of dates": wide([0, 1], index=[f"2020-01-0{i}" for i in range(1, 7)]),
    "years": wide([2019, 2020, 2021]),
    "years down": wide([2021, 2020, 2019]),
    "two years": wide([2019, 2020], country=LETTERS),
    "years of countries": wide([2019, 2020, 2021], country=LETTERS, unit=LETTERS),
    "years in steps": wide([2000, 2005, 2010, 2015]),
    "a year": wide([2020], country=LETTERS),
    "a year and a name": wide([2020], country=LETTERS, age=[1, 2, 3, 4, 5, 6]),
    "days": wide(["2020-01-01", "2020-01-02"], country=LETTERS),
    "hours": wide(list(range(24)), day=LETTERS),
    "from 1": wide(list(range(1, 9))),
    "names with digits": "x1,2x\n1,2\n",
    "repeated rows": "a,b\n1,2\n1,2\n",
    "a name above words": "a,b\nNA,1\nNA,2\n",
    "no rows": "a,1\n",
    "wide, and the first row is cut": ",".join(map(str, range(12_000))) + "\n0.123456" * 9,
    "numbers above texts": "1,2\nx,y\nz,w\n",
}


@pytest.mark.parametrize("case", DATA)
def test_a_first_line_of_data_is_an_error(tmp_path, case):
    file = tmp_path / "rows.csv"
    file.write_text(DATA[case])
    with pytest.raises(ValueError, match="first line looks like data") as error:
        read_header(str(file), CsvOptions())
    printed = str(error.value)
    assert str(file) in printed
    assert "data.csv.header: false" in printed
    assert "data.csv.header: true" in printed
    assert "--no-header" in printed


@pytest.mark.parametrize("case", NAMES)
def test_honest_names_are_not_asked_about(tmp_path, case):
    (tmp_path / "rows.csv").write_text(NAMES[case])
    read_header(str(tmp_path / "rows.csv"), CsvOptions())


def test_the_line_is_shown_shortened(tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join([",".join(map(str, range(7, 900, 3)))] * 3))
    with pytest.raises(ValueError, match=r"'7,10,13,[^']*…'") as error:
        read_header(str(tmp_path / "rows.csv"), CsvOptions())
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", ["", "\ufeff", "# about\n\n"])
def test_a_file_without_a_header_has_every_row(tmp_path, end, before):
    text = f"{before}5.1;x\n4.9;\n3;z\n".replace("\n", end)
    (tmp_path / "rows.csv").write_bytes(text.encode())
    table = open_table([str(tmp_path / "rows.csv")], CsvOptions(header=False, comment="#"))
    (block,) = table.blocks(table.files[0])
    assert block.to_pydict() == {"column_1": ["5.1", "4.9", "3"], "column_2": ["x", None, "z"]}


def test_names_of_numbers_are_read_where_the_options_say_so(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2,3\n4,5,6\n")
    table = open_table([str(tmp_path / "rows.csv")], CsvOptions(header=True))
    (block,) = table.blocks(table.files[0])
    assert block.to_pydict() == {"1": ["4"], "2": ["5"], "3": ["6"]}


def test_a_row_of_another_length_is_an_error_with_its_line(tmp_path):
    (tmp_path / "rows.csv").write_text("5,x\n6\n")
    table = open_table([str(tmp_path / "rows.csv")], CsvOptions(header=False))
    with pytest.raises(ValueError, match=r"line 2: 1 cells under a first line of 2 columns"):
        list(table.blocks(table.files[0]))


def test_files_of_one_table_need_as_many_columns(tmp_path):
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    files[0].write_text("5,x\n")
    files[1].write_text("5,x,7\n")
    with pytest.raises(ValueError, match=r"2\.csv: its header differs .* column_3"):
        open_table(list(map(str, files)), CsvOptions(header=False))


def test_a_later_file_without_a_header_is_an_error(tmp_path):
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    files[0].write_text("a,b\n5,x\n")
    files[1].write_text("5,x\n6,y\n")
    with pytest.raises(ValueError, match=r"2\.csv: the first line looks like data"):
        open_table(list(map(str, files)), CsvOptions())


def test_repeated_names_point_to_files_without_a_header(tmp_path):
    (tmp_path / "rows.csv").write_text("yes,yes\nno,yes\n")
    with pytest.raises(ValueError, match=r"repeated: yes.*data\.csv\.header: false"):
        read_header(str(tmp_path / "rows.csv"), CsvOptions())


NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_ ]{0,8}", fullmatch=True)


@given(
    names=st.lists(NAME, min_size=1, max_size=6),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=9),
)
def test_texts_above_numbers_are_names_and_rows_of_numbers_are_not(names, values):
    stream = io.StringIO()
    pd.DataFrame(dict.fromkeys(range(len(names)), values)).to_csv(stream, index=False, header=False)
    rows = rows_of(stream.getvalue())
    assert not looks_like_data(names, rows)
    assert looks_like_data(rows[0], rows[1:])


def test_wide_files_are_looked_at_quickly():
    row = [str(i / 7) for i in range(30_000)]
    assert looks_like_data(row, [row] * 50)
