"""CSV files as people have them: headers, delimiters, encodings, types, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from components import CsvOptions
from components.arrow_example_gen import csv_table
from components.arrow_example_gen.csv_table import open_table

AUTO = CsvOptions()


def read(*files: Path, **options: Any) -> tuple[dict[str, str | None], dict[str, list]]:
    """The types and the values of all columns."""
    table = open_table([str(file) for file in files], CsvOptions.model_validate(options))
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


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "^", "\x01"])
def test_delimiters_and_line_ends_are_found(tmp_path, delimiter):
    for end in ("\n", "\r\n", "\r"):
        lines = ['"a b"|class|"x|y"'.replace("|", "\0"), "1\0 yes \0u", "2\0no\0"]
        text = end.join(lines).replace("\0", delimiter).replace('"x|y"', f'"x{delimiter}y"')
        kinds, columns = read(written(tmp_path, text + end))
        assert columns == {"a b": [1, 2], "class": [" yes ", "no"], f"x{delimiter}y": ["u", None]}
        assert list(kinds.values()) == ["int", "string", "string"]


def test_another_sign_separates_cells_where_each_line_has_it_as_often(tmp_path):
    for delimiter in (" ", ":", "^"):
        text = "a,class\n1,yes\n2,no\n".replace(",", delimiter)
        assert read(written(tmp_path, text))[1] == {"a": [1, 2], "class": ["yes", "no"]}
        uneven = f"a{delimiter}b\nx\ny\n"  # a column of texts
        assert read(written(tmp_path, uneven))[1] == {f"a{delimiter}b": ["x", "y"]}


def test_a_file_of_another_format_is_refused_in_one_line(tmp_path):
    random = np.random.default_rng(0)
    for content in (
        random.bytes(400),
        b"PK\x03\x04" + bytes(600),
        b'{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n',
        b"<!DOCTYPE html>\n<title>Sign in, please</title>\n",
    ):
        file = written(tmp_path, content)
        with pytest.raises(ValueError, match="is not CSV: it begins with b") as refused:
            open_table([str(file)], AUTO)
        assert str(refused.value).startswith(f"{file} is ")
        assert "\n" not in str(refused.value)


def test_encodings_and_compressed_files(tmp_path):
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"):
        file = written(tmp_path, "größe,café\n1.5,é\n".encode(encoding))
        named = {} if encoding.startswith("utf") else {"encoding": encoding}
        assert read(file, **named)[1] == {"größe": [1.5], "café": ["é"]}
    file = written(tmp_path, gzip.compress(b"a,b\n" + b"1,x\n" * 10_000), "rows.gz")
    assert len(read(file)[1]["a"]) == 10_000


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        (
            'a,"b\nc"\n1,"x\r\ny, ""z"""\n\n2,""\n',
            {},
            {"a": [1, 2], "b\nc": ['x\r\ny, "z"', None]},
        ),
        (
            '# a file; of, somebody\nid;word\n1;"x\n# no comment"\n#2;left out\n3;#y\n',
            {"comment": "#"},
            {"id": [1, 3], "word": ["x\n# no comment", "#y"]},
        ),
        ("a,b\n'1,5','\"x'\n", {"quote": "'"}, {"a": ["1,5"], "b": ['"x']}),
        ('"",a,\n0,5,\n1,6,\n', {}, {"a": [5, 6]}),
        ("a,b\n-999,NA\n7,x\n", {"missing": ["", "-999"]}, {"a": [None, 7], "b": ["NA", "x"]}),
        (
            "a,b\nunknown,unknown\n5,NA\n <5 ,x\n",
            {"missing_in": {"a": ("unknown", "<5")}},
            {"a": [None, 5, None], "b": ["unknown", None, "x"]},
        ),
        (
            "a;b;c\n1,5;3;x\n;-1,0;y\n",
            {},
            {"a": [1.5, None], "b": [3.0, -1.0], "c": ["x", "y"]},
        ),
        ("a;b\n1,5;3.5\n", {}, {"a": ["1,5"], "b": [3.5]}),
        ("a;b\n1,5;3.5\n", {"decimal": ","}, {"a": [1.5], "b": ["3.5"]}),
        ("zip,n\n01234,1\n99999,2\n", {"text": ["zip"]}, {"zip": ["01234", "99999"], "n": [1, 2]}),
    ],
)
def test_dialects(tmp_path, text, options, columns):
    file = written(tmp_path, text)
    assert read(file, **options)[1] == columns
    is_left_out = "column has no name and is left out" in open_table([str(file)], AUTO).dropped
    assert is_left_out == (columns == {"a": [5, 6]})


def test_a_cell_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1000)
    text = "a,b\n" + "1,x\n" * 500 + "2," + "y" * 5000 + "\n3,z\n"
    columns = read(written(tmp_path, text))[1]
    assert columns["a"] == [1] * 500 + [2, 3]
    assert [len(value) for value in columns["b"][-3:]] == [1, 5000, 1]


def test_files_of_one_table_may_order_their_columns_otherwise(tmp_path):
    first = written(tmp_path, "a,b\n1,x\n", "1.csv")
    second = written(tmp_path, "b;a\ny;2\n", "2.csv")
    assert read(first, second)[1] == {"a": [1, 2], "b": ["x", "y"]}


def test_words_for_missing_values(tmp_path):
    for word in ("NA", "N/A", "?", " ?", "null", "NaN", "nan", "", '""'):
        kinds, columns = read(written(tmp_path, f"a,b\n{word},x\n7,{word}\n"))
        assert kinds == {"a": "int", "b": "string"}
        assert columns == {"a": [None, 7], "b": ["x", None]}


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["60.0", "", "61."], "int", [60, None, 61]),  # as pandas writes them
        (["60.0", "61.0"], "float", [60.0, 61.0]),
        (["1700000001.0", "2.00"], "int", [1700000001, 2]),  # float32 would round them
        (["99999999999999999999.0", "", "1.0"], "float", [1e20, None, 1.0]),
        (["1" * 5000, "1"], "string", ["1" * 5000, "1"]),  # more digits than Python takes
        (["+-7", "8"], "string", ["+-7", "8"]),
        ([" 7", "+8", "-0", "007"], "int", [7, 8, 0, 7]),
        (["1e3", ".5", "-5.", "1E-2"], "float", [1000.0, 0.5, -5.0, 0.01]),
        (["inf", "1", "-Infinity"], "float", [float("inf"), 1.0, float("-inf")]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
        (["60,000", "1"], "string", ["60,000", "1"]),  # thousands or a decimal: nobody knows
        (["True", "false", ""], "int", [1, 0, None]),
        (["", "", ""], None, [None, None, None]),
    ],
)
def test_types(tmp_path, cells, kind, values):
    text = "row,a\n" + "".join(f'{i},"{cell}"\n' for i, cell in enumerate(cells))
    kinds, columns = read(written(tmp_path, text))
    assert (kinds["a"], columns["a"]) == (kind, values)


NUMBERS = "".join(f"{i},{i}.5\n" for i in range(40))
UNREADABLE = [
    ("", "has no line with the columns' names"),
    ("a,b,a\n1,2,3\n", "must name every column once; repeated: a"),
    ("a,,b\n1,2,3\n", "must name every column once; one name is empty"),
    ("a\0b,c\n1,2\n", r"rows\.csv: the column name 'a\\x00b' has a NUL byte"),
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
]


def test_unreadable_content_is_an_error_with_its_line(tmp_path):
    for content, message in UNREADABLE:
        with pytest.raises(ValueError, match=message):
            read(written(tmp_path, content))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"delimiter": each}, "is not one ASCII character") for each in ("x", "\0")),
        ({"decimal": ",", "delimiter": ","}, "decimal and delimiter are both ','"),
        ({"encoding": "base64"}, "unknown encoding 'base64'; use utf-8"),
        ({"comment": ""}, "at least 1 character"),
        ({"decimal": "'"}, r"decimal\n.*should be '\.' or ','"),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        CsvOptions.model_validate(options)
