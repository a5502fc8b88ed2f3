"""Values of CSV files, byte for byte: as Python's `csv` module reads them, wherever blocks end.

Every file is read as a whole and in the parts that several workers would read.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components import CsvOptions
from components.arrow_example_gen import csv_table, csv_text
from components.arrow_example_gen.columns import Block
from components.arrow_example_gen.csv_table import open_table
from components.arrow_example_gen.csv_text import WHOLE

RAW = CsvOptions(missing=(), delimiter=",")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1024)
    monkeypatch.setattr(csv_table, "_BYTES_A_COLUMN", 1)
    monkeypatch.setattr(csv_text, "_PART_BYTES", 500)
    monkeypatch.setattr(csv_text, "_PIECE_BYTES", 256)


def rows_of(file: Path, options: CsvOptions = RAW, *, least_parts: int = 1) -> list[list[str]]:
    """The cells below the header as ExampleGen's reader has them, of the whole and of its parts."""
    table = open_table([str(file)], options)
    whole = _rows(table.all_blocks())
    parts = [_rows(table.read_blocks(part)) for part in table.parts(str(file))]
    assert [row for part in parts for row in part] == whole
    assert len(parts) >= least_parts
    return whole


def _rows(blocks: Iterable[Block]) -> list[list[str]]:
    cells = (each.cells.to_pydict().values() for each in blocks)
    return [list(row) for columns in cells for row in zip(*columns, strict=True)]


def by_python(text: str) -> list[list[str]]:
    """The cells below the header as Python's `csv` module has them."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]


def written(folder: Path, content: str | bytes) -> Path:
    file = folder / "rows.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


FOR_FILES = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXTS = st.text(st.sampled_from('ab,"\r\n\0 \t\\é€😀\x85\u2028\ufeff;#'), max_size=60)
STYLES = st.sampled_from(
    [
        *({"lineterminator": end, "quoting": csv.QUOTE_ALL} for end in ("\n", "\r\n", "\r")),
        {"lineterminator": "\r\n", "quoting": csv.QUOTE_MINIMAL},
    ]
)


@FOR_FILES
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
    assert rows_of(written(tmp_path, whole.encode(encoding))) == by_python(whole)


@FOR_FILES
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


@pytest.mark.parametrize("what", ["\r\n", '""', "\r", "é", "😀", "\0", "\\"])
def test_wherever_a_block_ends(tmp_path, what):
    """Text of one kind, moved byte by byte over the edge of blocks."""
    for shift in range(9):
        text = 'a,b\n"' + "x" * shift + what * 2_000 + '",1\n' + f'"{what}",2\n' * 300 + "z,3"
        assert rows_of(written(tmp_path, text)) == by_python(text), shift


def test_nuls_and_byte_order_marks_are_text(tmp_path):
    """Arrow's scanner does not see what stands behind a NUL within 16 bytes."""
    rows = [["x\0y" if i % 64 == 0 else "plain", str(i)] for i in range(3000)]
    rows += [["\ufeffx", str(i)] for i in range(300)]  # files written one behind the other
    text = "a,label\n" + "".join(",".join(row) + "\n" for row in rows)
    assert rows_of(written(tmp_path, text)) == rows


def test_an_open_quote_is_an_error_where_rows_of_other_lengths_are_skipped(tmp_path):
    file = str(written(tmp_path, 'a,b\n1\n2,"x\n3,y\n'))
    with pytest.raises(ValueError, match=r"line 3: a cell begins with \" that does not end"):
        list(open_table([file], RAW).all_blocks(unreadable=[]))


def test_comments_between_rows_of_any_line_end(tmp_path):
    options = CsvOptions(missing=(), comment="#")
    for end in ("\n", "\r\n", "\r"):
        lines = ["# it's \"odd", "a,b", *['5",x', "# no", '"#1' + end + '#2",y'] * 200, "#"]
        file = written(tmp_path, end.join(lines))
        assert rows_of(file, options) == [['5"', "x"], [f"#1{end}#2", "y"]] * 200
    text = "# terms and conditions\n" * 10_000 + "a,b\n1,2\n"
    assert rows_of(written(tmp_path, text), options) == [["1", "2"]]


LONG_HEADERS = {
    "many": [f"column_number_{i}" for i in range(6_000)],
    "1.5 MB": [f"{i}: " + "n" * 150_000 for i in range(10)],
}


@pytest.mark.parametrize("names", LONG_HEADERS.values(), ids=LONG_HEADERS)
def test_headers_of_any_length(tmp_path, names):
    for delimiter in ",;":
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows([names, range(len(names))])
        table = open_table([str(written(tmp_path, text.getvalue()))], CsvOptions())
        assert table.columns == tuple(name.strip() for name in names)
        assert _rows(table.all_blocks()) == [list(map(str, range(len(names))))]


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


LINES = [f"{i % 7},é {i % 5}\n" for i in range(200)]  # equal rows, so that their places count
PLAIN = "number,text\n" + "".join(LINES)


@pytest.mark.parametrize(
    ("text", "encoding", "options"),
    [
        (PLAIN.replace("\n", "\r\n"), "utf-8-sig", {}),
        ("\n" * 1_000 + PLAIN.replace("\n", "\n\n"), "utf-8", {}),
        ('"a","b"\n' + "".join(f'{i},"é\n{i}, """\n' for i in range(200)), "utf-8-sig", {}),
        ("".join(LINES), "utf-8", {"header": False}),
    ],
    ids=["crlf-mark", "blank-lines", "quoted-line-ends", "no-header"],
)
def test_parts_are_whole_records(tmp_path, text, encoding, options):
    """Reference: the file read from its beginning."""
    file = written(tmp_path, text.encode(encoding))
    assert len(rows_of(file, CsvOptions.model_validate(options), least_parts=3)) == 200


def test_files_that_one_worker_reads(tmp_path):
    for content, encoding in (
        (PLAIN.encode("utf-16"), None),
        (PLAIN.encode("shift_jis", "replace"), "shift_jis"),  # its second bytes may be ASCII
        (gzip.compress(PLAIN.encode()), None),
        (PLAIN.replace("é", 'a "quote').encode(), None),  # not where a cell begins
        (b"number,text\n", None),
    ):
        file = str(written(tmp_path, content))
        table = open_table([file], CsvOptions(encoding=encoding))
        assert table.parts(file) == [(file, WHOLE, 0)]
