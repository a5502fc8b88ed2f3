"""Values of CSV files, byte for byte: as Python's `csv` module reads them, wherever blocks end."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components import CsvOptions
from components.arrow_example_gen import csv_chunks, csv_table
from components.arrow_example_gen.csv_chunks import Chunk, chunks
from components.arrow_example_gen.csv_table import open_table
from components.arrow_example_gen.csv_text import Utf8Stream

ROOT = Path(__file__).resolve().parents[3]
RAW = CsvOptions(missing=(), delimiter=",")
BLOCK = 1024


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(csv_table, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(csv_table, "_BYTES_A_COLUMN", 1)
    monkeypatch.setattr(csv_chunks, "PART_BYTES", 500)
    monkeypatch.setattr(csv_chunks, "_PIECE_BYTES", 256)


def rows_of(file: Path, options: CsvOptions = RAW) -> list[list[str]]:
    """The cells below the header as ExampleGen's reader has them, of the whole and of its parts."""
    table = open_table([str(file)], options)
    whole = _rows(table.blocks(str(file)))
    parts = [table.blocks(str(file), part=part) for _, part, _ in table.parts(str(file))]
    assert [row for blocks in parts for row in _rows(blocks)] == whole
    return whole


def _rows(blocks: Iterable[pa.RecordBatch]) -> list[list[str]]:
    return [list(row) for block in blocks for row in zip(*block.to_pydict().values(), strict=True)]


def by_python(text: str) -> list[list[str]]:
    """The cells below the header as Python's `csv` module has them."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]


def written(folder: Path, content: str | bytes, name: str = "rows.csv") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


CHARACTERS = st.sampled_from('ab,"\r\n\0 \t\\é€😀\x85\u2028\ufeff;#')
TEXTS = st.text(CHARACTERS, max_size=60)
STYLES = st.sampled_from(
    [
        *({"lineterminator": end, "quoting": csv.QUOTE_ALL} for end in ("\n", "\r\n", "\r")),
        {"lineterminator": "\r\n", "quoting": csv.QUOTE_MINIMAL},
    ]
)


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=40),
    shift=st.integers(0, 80),
    style=STYLES,
    encoding=st.sampled_from(
        ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]  # detected
    ),
    last_end=st.booleans(),
)
def test_any_text_in_cells_is_unchanged(tmp_path, rows, shift, style, encoding, last_end):
    text = io.StringIO(newline="")
    writer = csv.writer(text, **style)
    writer.writerows([["a", "b"], ["x" * shift, "y"], *rows, ["last", "1"]])
    whole = text.getvalue()
    if not last_end:
        whole = whole.removesuffix(style["lineterminator"])
    file = written(tmp_path, whole.encode(encoding))
    assert rows_of(file) == by_python(whole)


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lines=st.lists(
        st.text(st.sampled_from('ab"" é\0'), max_size=12).map(lambda cell: f"{cell},1"), max_size=60
    ),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n"]),
)
@example(lines=['5" pipe,1', '"6"" pipe",1'] * 100, end="\n")
@example(lines=['"a"b"c,1'] * 100, end="\r\n")
@example(lines=['5" pipe,1', '"x\ny",1'] * 200, end="\n")
def test_quotes_within_cells_are_read_as_by_python(tmp_path, lines, end):
    """A quote that opens no cell is a character; one that does not end is an error."""
    text = end.join(["a,b", *lines, "z,2", ""])
    expected = by_python(text)
    file = written(tmp_path, text)
    if all(len(row) == 2 for row in expected) and expected[-1] == ["z", "2"]:
        assert rows_of(file) == expected
    else:
        with pytest.raises(ValueError, match=r"rows\.csv, line \d+: "):
            rows_of(file)


@pytest.mark.parametrize("what", ["\r\n", '""', "\n", "\r", "é", "😀", "\0", "\\"])
def test_wherever_a_block_ends(tmp_path, what):
    """Text of one kind, moved byte by byte over the edge of blocks."""
    for shift in range(9):
        text = 'a,b\n"' + "x" * shift + what * 2_000 + '",1\n' + f'"{what}",2\n' * 300 + "z,3"
        assert rows_of(written(tmp_path, text)) == by_python(text), shift


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\n\r\n"])
def test_line_ends_at_the_edge_of_a_block(tmp_path, end):
    """A CRLF that is cut in two makes no row, and an empty line neither."""
    for shift in range(7):
        rows = [["x" * shift, "y"], *([str(i), "1"] for i in range(1000))]
        text = "".join(",".join(row) + end for row in [["a", "b"], *rows])
        assert rows_of(written(tmp_path, text)) == rows, shift


def test_a_chunk_with_a_nul_is_parsed_by_python(tmp_path):
    """The count of records does not see a doubled quote that newer versions of Arrow miss."""
    file = written(tmp_path, 'a,b\n"x\0""y",1\n')
    with Utf8Stream(str(file), "utf-8") as stream:
        (chunk,) = chunks(stream, ",", RAW, BLOCK)
    assert chunk.rows == [["a", "b"], ['x\0"y', "1"]]


def test_records_are_read_again_where_arrow_counts_others():
    data = b"#x,1\n2,3\n"  # Arrow reads the comment as a record
    options = CsvOptions(missing=(), comment="#")
    parser = csv_chunks.ChunkParser(2, ",", options, [0, 1], None)
    columns = parser.columns(Chunk(memoryview(data), count=1))
    assert [column.to_pylist() for column in columns] == [["2"], ["3"]]


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000])
def test_a_nul_loses_no_row(tmp_path, count):
    """Arrow's scanner does not see what stands behind a NUL within 16 bytes."""
    rows = [["x\0y" if i % count == 0 else "plain", str(i)] for i in range(3000)]
    text = "a,label\n" + "".join(",".join(row) + "\n" for row in rows)
    assert rows_of(written(tmp_path, text)) == rows


def test_a_byte_order_mark_within_a_file_is_text(tmp_path):
    """Wherever a chunk begins: files that were written one behind the other have such."""
    rows = [["\ufeffx", str(i)] for i in range(300)]
    text = "a,label\n" + "".join(",".join(row) + "\n" for row in rows)
    assert rows_of(written(tmp_path, text)) == rows


def test_an_open_quote_is_an_error_where_rows_of_other_lengths_are_skipped(tmp_path):
    file = str(written(tmp_path, 'a,b\n1\n2,"x\n3,y\n'))
    with pytest.raises(ValueError, match=r"line 3: a cell begins with \" that does not end"):
        list(open_table([file], RAW).blocks(file, unreadable=[]))


def test_a_nul_in_a_name_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.csv: the column name 'a\\x00b' has a NUL byte"):
        open_table([str(written(tmp_path, "a\0b,c\n1,2\n"))], CsvOptions())


def test_rows_that_arrow_merges_are_counted(tmp_path, monkeypatch):
    """The count alone finds them: here Arrow parses a chunk with NULs."""
    rows = [["x\0y", str(i)] for i in range(300)]
    text = "a,label\n" + "".join(",".join(row) + "\n" for row in rows)
    parse = csv_chunks.ChunkParser.columns

    def by_arrow(self, chunk):
        return parse(self, chunk._replace(rows=None))

    monkeypatch.setattr(csv_chunks.ChunkParser, "columns", by_arrow)
    assert rows_of(written(tmp_path, text)) == rows


def test_comments_between_rows_of_any_line_end(tmp_path):
    options = CsvOptions(missing=(), comment="#")
    for end in ("\n", "\r\n", "\r"):
        lines = ["# it's \"odd", "a,b", *['5",x', "# no", '"#1' + end + '#2",y'] * 200, "#"]
        file = written(tmp_path, end.join(lines))
        assert rows_of(file, options) == [['5"', "x"], [f"#1{end}#2", "y"]] * 200


def test_a_long_comment_above_the_header(tmp_path):
    text = "# terms and conditions\n" * 10_000 + "a,b\n1,2\n"
    assert rows_of(written(tmp_path, text), CsvOptions(comment="#")) == [["1", "2"]]


LONG_HEADERS = {
    "many": [f"column_number_{i}" for i in range(6_000)],
    "questions": [f"{i}. How often, in a week, do you " + "walk " * 120 for i in range(150)],
    "one": ["n" * 70_000, "label"],
    "1.5 MB": [f"{i}: " + "n" * 150_000 for i in range(10)],
}


@pytest.mark.parametrize("names", LONG_HEADERS.values(), ids=LONG_HEADERS)
@pytest.mark.parametrize("delimiter", ",;\t")
def test_headers_of_any_length(tmp_path, names, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([names, range(len(names))])
    file = written(tmp_path, text.getvalue())
    table = open_table([str(file)], CsvOptions())
    assert table.columns == tuple(name.strip() for name in names)
    (batch,) = table.blocks(str(file))
    assert batch.num_columns == len(names)
    assert [column[0].as_py() for column in batch.columns] == [str(i) for i in range(len(names))]


def test_a_header_without_end(tmp_path):
    file = written(tmp_path, 'a,"b\n' + ("1," + "2" * 998 + "\n") * 17_000)
    with pytest.raises(ValueError, match=r"rows\.csv: the first line.* within 16 MB.* quote"):
        open_table([str(file)], CsvOptions())
    file = written(tmp_path, 'a,"b\n1,2\n')
    with pytest.raises(ValueError, match=r'rows\.csv, line 1: a cell begins with " that does not'):
        open_table([str(file)], CsvOptions())


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path):
    for encoding, end in (("utf-8", "\r"), ("utf-8", "\n"), ("shift_jis", "\r\n")):
        text = f"a,b{end}" + f"1,x{end}" * 40_000
        file = written(tmp_path, text.encode(encoding) + b"2,\xff\xfe\n")
        options = CsvOptions(encoding=None if encoding == "utf-8" else encoding)
        with pytest.raises(ValueError, match=rf"line 40002: byte 0xff is not text in {encoding}"):
            rows_of(file, options)


def test_a_process_that_ends_after_a_long_cell_ends_cleanly(tmp_path):
    """A thread that reads when Python ends would abort it; so no thread of Python's is left."""
    file = written(tmp_path, "a,b\n" + "1," + "y" * 3_000_000 + "\n" + "2,x\n" * 200_000)
    code = """
import sys, threading
from components.arrow_example_gen import csv_table
from components.arrow_example_gen.csv_options import CsvOptions

sys.setswitchinterval(1e-5)
rows = csv_table.open_table(sys.argv[1:], CsvOptions()).blocks(sys.argv[1])
next(rows)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", code, str(file)], env=environment, check=True, timeout=240
        )
