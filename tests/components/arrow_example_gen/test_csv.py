"""CSV files as people have them: headers, delimiters, encodings, types, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from components import CsvOptions
from components.arrow_example_gen import csv_table
from components.arrow_example_gen.csv_table import open_table

AUTO = CsvOptions()


def read(*files: Path, options: CsvOptions = AUTO) -> tuple[dict[str, str | None], dict[str, list]]:
    """The types and the values of all columns."""
    table = open_table([str(file) for file in files], options)
    blocks = list(table.all_blocks())
    types = table.types(table.together([table.together([]), *map(table.count, blocks)]))
    columns: dict[str, list[Any]] = {name: [] for name in table.columns}
    for block in blocks:
        for name in table.columns:
            columns[name] += table.typed(block, name, types).to_pylist()
    return dict(types.kinds), columns


def written(folder: Path, content: str | bytes, name: str = "rows.csv") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "^", "~", "#", "\x01"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends_are_found(tmp_path, delimiter, end):
    lines = ['"a b"|class|"x|y"'.replace("|", "\0"), "1\0 yes \0u", "2\0no\0"]
    text = end.join(lines).replace("\0", delimiter).replace('"x|y"', f'"x{delimiter}y"')
    kinds, columns = read(written(tmp_path, text + end))
    assert columns == {"a b": [1, 2], "class": [" yes ", "no"], f"x{delimiter}y": ["u", None]}
    assert list(kinds.values()) == ["int", "string", "string"]


@pytest.mark.parametrize("delimiter", [" ", ":", "^"])
def test_another_sign_separates_cells_where_each_line_has_it_as_often(tmp_path, delimiter):
    text = "a,class\n1,yes\n2,no\n".replace(",", delimiter)
    assert read(written(tmp_path, text))[1] == {"a": [1, 2], "class": ["yes", "no"]}
    uneven = f"a{delimiter}b\nx\ny\n"  # a column of texts
    assert read(written(tmp_path, uneven))[1] == {f"a{delimiter}b": ["x", "y"]}


@pytest.mark.parametrize("delimiter", ["x", "1", "\n", "é", ""])
def test_what_cannot_separate_cells_is_refused_by_name(delimiter):
    with pytest.raises(ValueError, match=r"delimiter\n.*is not one ASCII character"):
        CsvOptions(delimiter=delimiter)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (np.random.default_rng(0).bytes(400), "begins with"),
        (np.random.default_rng(1).bytes(100_000), "begins with"),
        (b"\x89PNG\r\n\x1a\n" + np.random.default_rng(2).bytes(400), "begins with"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "begins with"),
        (b"PK\x03\x04" + bytes(600), "begins with"),
        (b"PAR1\x15\x04\x15\x20", "begins with b'PAR1"),
        (b'{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n', "begins with"),
        (b"<!DOCTYPE html>\n<title>Sign in, please</title>\n", "begins with b'<!DOCTYPE"),
    ],
)
@pytest.mark.parametrize("encoding", [None, "latin-1"])
def test_a_file_of_another_format_is_refused_in_one_line(tmp_path, content, named, encoding):
    file = written(tmp_path, content)
    with pytest.raises(ValueError, match=named) as refused:
        open_table([str(file)], CsvOptions(encoding=encoding))
    assert str(refused.value).startswith(f"{file} is ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-8", False),
        ("utf-8-sig", False),
        ("utf-16", False),
        ("latin-1", True),
        ("cp1252", True),
    ],
)
def test_encodings(tmp_path, encoding, named):
    file = written(tmp_path, "größe,café\n1.5,é\n".encode(encoding))
    options = CsvOptions(encoding=encoding if named else None)
    assert read(file, options=options)[1] == {"größe": [1.5], "café": ["é"]}


@pytest.mark.parametrize("opened", [gzip.open, bz2.open])
def test_compressed_files(tmp_path, opened):
    ending = {gzip.open: ".gz", bz2.open: ".bz2"}[opened]
    with opened(tmp_path / f"rows.csv{ending}", "wb") as stream:
        stream.write(b"a,b\n" + b"1,x\n" * 100_000)
    assert len(read(tmp_path / f"rows.csv{ending}")[1]["a"]) == 100_000


def test_quotes_hold_delimiters_quotes_and_line_breaks(tmp_path):
    text = 'a,"b\nc"\n1,"x\r\ny, ""z"""\n\n2,""\n'
    assert read(written(tmp_path, text))[1] == {"a": [1, 2], "b\nc": ['x\r\ny, "z"', None]}


def test_a_cell_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "BLOCK_BYTES", 1000)
    text = "a,b\n" + "1,x\n" * 500 + "2," + "y" * 5000 + "\n3,z\n"
    columns = read(written(tmp_path, text))[1]
    assert columns["a"] == [1] * 500 + [2, 3]
    assert [len(value) for value in columns["b"][-3:]] == [1, 5000, 1]


def test_comments(tmp_path):
    text = '# a file; of, somebody\nid;word\n1;"x\n# no comment"\n#2;left out\n3;#y\n'
    options = CsvOptions(comment="#")
    assert read(written(tmp_path, text), options=options)[1] == {
        "id": [1, 3],
        "word": ["x\n# no comment", "#y"],
    }


def test_another_quote(tmp_path):
    options = CsvOptions(quote="'")
    assert read(written(tmp_path, "a,b\n'1,5','\"x'\n"), options=options)[1] == {
        "a": ["1,5"],
        "b": ['"x'],
    }


@pytest.mark.parametrize("text", [",a\n0,5\n1,6\n", "a,\n5,\n6,\n", '"",a,\n0,5,\n1,6,\n'])
def test_a_column_without_a_name_at_an_end_is_left_out(tmp_path, text):
    file = written(tmp_path, text)
    assert read(file)[1] == {"a": [5, 6]}
    table = open_table([str(file)], AUTO)
    assert "column has no name and is left out" in table.dropped


def test_files_of_one_table_may_order_their_columns_otherwise(tmp_path):
    first = written(tmp_path, "a,b\n1,x\n", "1.csv")
    second = written(tmp_path, "b;a\ny;2\n", "2.csv")
    assert read(first, second)[1] == {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize("word", ["NA", "N/A", "?", " ?", "null", "NaN", "nan", "", '""'])
def test_words_for_missing_values(tmp_path, word):
    kinds, columns = read(written(tmp_path, f"a,b\n{word},x\n7,{word}\n"))
    assert kinds == {"a": "int", "b": "string"}
    assert columns == {"a": [None, 7], "b": ["x", None]}


def test_words_of_ones_own_replace_them(tmp_path):
    options = CsvOptions(missing=("", "-999"))
    assert read(written(tmp_path, "a,b\n-999,NA\n7,x\n"), options=options)[1] == {
        "a": [None, 7],
        "b": ["NA", "x"],
    }


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["60.0", "", "61."], "int", [60, None, 61]),  # as pandas writes them beside missing ones
        (["60.0", "61.0"], "float", [60.0, 61.0]),
        (["1700000001.0", "2.00"], "int", [1700000001, 2]),  # float32 would round them
        (["-16777217.", "3"], "int", [-16777217, 3]),
        (["1700000001.0", "0.5"], "float", [1700000001.0, 0.5]),
        (["60.5", "", "61.0"], "float", [60.5, None, 61.0]),
        (["99999999999999999999.0", "", "1.0"], "float", [1e20, None, 1.0]),
        (["1" * 5000, "1"], "string", ["1" * 5000, "1"]),  # more digits than Python converts
        (["+-7", "8"], "string", ["+-7", "8"]),
        ([" 7", "+8", "-0", "007"], "int", [7, 8, 0, 7]),
        (["1e3", ".5", "-5.", "1E-2"], "float", [1000.0, 0.5, -5.0, 0.01]),
        (["inf", "1", "-Infinity"], "float", [float("inf"), 1.0, float("-inf")]),
        (["9223372036854775807", "1"], "int", [2**63 - 1, 1]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
        (["60,000", "1"], "string", ["60,000", "1"]),  # thousands or a decimal: nobody knows
        (["1_000", "1"], "string", ["1_000", "1"]),
        (["", "", ""], None, [None, None, None]),
    ],
)
def test_types(tmp_path, cells, kind, values):
    text = "row,a\n" + "".join(f'{i},"{cell}"\n' for i, cell in enumerate(cells))
    kinds, columns = read(written(tmp_path, text))
    assert (kinds["a"], columns["a"]) == (kind, values)


def test_decimal_commas(tmp_path):
    file = written(tmp_path, "a;b;c\n1,5;3;x\n;-1,0;y\n")
    assert read(file)[1] == {"a": [1.5, None], "b": [3.0, -1.0], "c": ["x", "y"]}
    mixed = written(tmp_path, "a;b\n1,5;3.5\n", "mixed.csv")
    assert read(mixed)[1] == {"a": ["1,5"], "b": [3.5]}
    assert read(mixed, options=CsvOptions(decimal=","))[1] == {"a": [1.5], "b": ["3.5"]}


def test_codes_that_look_like_numbers(tmp_path):
    file = written(tmp_path, "zip,n\n01234,1\n99999,2\n")
    assert read(file, options=CsvOptions(text=("zip",)))[1]["zip"] == ["01234", "99999"]


NUMBERS = "".join(f"{i},{i}.5\n" for i in range(40))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no line with the columns' names"),
        ("a,b,a\n1,2,3\n", "must name every column once; repeated: a"),
        (",\n1,2\n", "must name every column once; one name is empty"),
        (",,\n1,2,3\n", "must name every column once; one name is empty"),
        ("a,,b\n1,2,3\n", "must name every column once; one name is empty"),
        ("a,,b\n1,,3\n", "several signs between two columns"),
        ("a||b||c\n1||2||3\n", r"several signs between two columns: 'a\|\|b\|\|c'"),
        ("age   size  y\n12    3     4\n", "several signs between two columns"),
        (" age size    y\n  12    3    4\n", "several signs between two columns"),
        ("a,b\n1,2\n3\n", r"rows\.csv, line 3: 1 cells under a header of 2 columns"),
        ('a,b\n1,"x\ny"\n3,4,5\n', r"rows\.csv, line 4: 3 cells under a header of 2 columns"),
        ('a,b\n1,2\n3,"x\n4,5\n', r"rows\.csv, line 3: a cell begins with \" that does not end"),
        (
            "a,b\n" + NUMBERS + "1,many\n",
            r"rows\.csv, line 42: column 'b': 'many' is text, and 40 of 41 values are numbers\. "
            r"Correct it, add it to data\.csv\.missing .* data\.csv\.text",
        ),
        (
            "a,b\n1,é\n".encode("latin-1"),
            r"rows\.csv, line 2: byte 0xe9 is not text in utf-8\. Name .* data\.csv\.encoding",
        ),
        (
            ("a,b\n" + "1,x\n" * 30_000 + "2,é\n").encode("latin-1"),
            r"rows\.csv, line 30002: byte 0xe9 is not text in utf-8",
        ),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "bytes",
)
def test_unreadable_content_is_an_error_with_its_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path, content))


def test_a_damaged_compressed_file(tmp_path):
    whole = gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 100_000 + b",1\n")
    for name, content in (("cut.csv.gz", whole[:-20]), ("no.csv.gz", b"a,b\n1,2\n")):
        with pytest.raises(ValueError, match=rf"{name} cannot be decompressed as gzip \("):
            read(written(tmp_path, content, name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ", "}, "is not one ASCII character"),
        ({"decimal": ",", "delimiter": ","}, "decimal and delimiter are both ','"),
        ({"quote": ";", "delimiter": ";"}, "delimiter and quote are both ';'"),
        ({"delimiter": "\0"}, "is not one ASCII character"),
        ({"encoding": "base64"}, "unknown encoding 'base64'; use utf-8"),
        ({"encoding": "undefined"}, "unknown encoding 'undefined'; use utf-8"),
        ({"encoding": "latin1000"}, "unknown encoding 'latin1000'; use utf-8"),
        ({"comment": ""}, "would leave every line out"),
        ({"decimal": "'"}, "is not a decimal mark"),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        CsvOptions.model_validate(options)


@pytest.mark.slow
def test_a_reader_that_is_given_up_does_not_hang(tmp_path):
    """In a separate process: one that hangs in Arrow cannot be ended from Python."""
    rows = [f"{i},{i / 2},abcdefg" for i in range(400_000)]
    (tmp_path / "whole.csv").write_text("\n".join(["a,b,c", *rows]))
    rows[100_000] = "1,2"
    (tmp_path / "ragged.csv").write_text("\n".join(["a,b,c", *rows]))
    code = """
import sys
from components.arrow_example_gen import csv_table
from components.arrow_example_gen.csv_options import CsvOptions

sys.setswitchinterval(1e-5)
options = CsvOptions()
for file in ("whole.csv", "ragged.csv") * 10:
    table = csv_table.open_table([file], options)
    first = table.blocks(file)
    next(first)
    del first
    try:
        list(table.blocks(file))
    except ValueError as error:
        assert file == "ragged.csv" and "line 100002" in str(error), error
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=240
    )
