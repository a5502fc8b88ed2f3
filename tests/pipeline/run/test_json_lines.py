"""JSON lines: what is a value, and what is refused with line and column, or skipped and counted."""

from __future__ import annotations

import bz2
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components import CsvOptions
from components.arrow_example_gen.csv_types import NumberTexts
from pipeline.common.errors import ConfigError
from pipeline.run.input_rows import _BATCH_ROWS, InputRows, open_rows
from pipeline.run.json_lines import JsonRow, json_batch, json_rows
from pipeline.run.raw_rows import model_rows

GOOD = b'{"x": 1.5, "t": "a"}\n'
LONG = 10_000_000


def opened(file: Path, content: bytes, *, skip: bool = False) -> InputRows:
    file.write_bytes(content)
    rows = open_rows([file], str(file), "jsonl", CsvOptions(), skip=skip)
    rows.needed = {"x": "float", "t": "string"}
    return rows


def read(rows: InputRows) -> list[dict[str, Any]]:
    return [row for batch in rows.batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (rb'{"x": 1, "t": "\ud800"}', r"column 't': \\ud800 is half of a surrogate pair"),
        (rb'{"x": 1, "t": ["a", "\udfff"]}', r"column 't': \\udfff is half of"),
        (rb'{"x": 1, "\ud800": 2}', r"column '\\ud800': \\ud800 is half of"),
        (b'{"x": 1%s}' % (b"0" * 400), r"column 'x': 1000.*\(401 characters\) is beyond 1.8e308"),
        (b'{"x": -1%s}' % (b"0" * 5000), r"column 'x': .* is beyond 1.8e308"),
        (b'{"x": 1e400}', r"column 'x': 1e400 is beyond 1.8e308"),
        (b'{"x": [1, 1e400]}', r"column 'x': 1e400 is beyond 1.8e308"),
        (b'{"x": {"a": 1}}', r"column 'x' is an object, not a value"),
        (b'{"x": [[1]]}', r"column 'x' has a list of lists"),
        (b'{"x": [{"a": 1}]}', r"column 'x' has a list of lists or objects"),
        (b'{"x": 1, "t": "a", "x": 2}', r"names 'x' twice"),
        (b'{"x": 1, "o": {"a": 1, "a": 2}}', r"names 'a' twice"),
        (b"[1, 2]", r"is not an object"),
        (b"[", r"is not JSON .*not one array"),
        (b"null", r"is not an object"),
        (b'"x"', r"is not an object"),
        (b'{"x": 1', r"is not JSON"),
        (b'{"x": 1}{"x": 2}', r"is not JSON"),
        (b"{'x': 1}", r"is not JSON"),
        (b'{"t": "\xff"}', r"byte 0xff is not text in UTF-8"),
        (b'{"t": "a\x00b"}', r"is not JSON"),
        (b"[" * 100_000, r"is nested too deeply"),
        (b'{"x": %s1%s}' % (b"[" * 100_000, b"]" * 100_000), r"is nested too deeply"),
        ('{"x": 1}'.encode("utf-16"), r"is not text in UTF-8"),
    ],
    ids=lambda value: str(value[:24]),
)
@pytest.mark.parametrize("place", [0, 1, _BATCH_ROWS + 3])
def test_lines_that_are_no_rows(tmp_path, line, message, place):
    content = GOOD * place + line + b"\n" + GOOD
    with pytest.raises(ConfigError, match=rf"(?s)rows\.jsonl, line {place + 1}: .*{message}"):
        read(opened(tmp_path / "rows.jsonl", content))
    rows = opened(tmp_path / "rows.jsonl", content, skip=True)
    assert len(read(rows)) == place + 1
    assert len(rows.unreadable) == 1
    assert rows.unreadable[0].startswith(f"line {place + 1}: ")


def test_values(tmp_path):
    """Empty lines, a byte order mark and Windows' line ends are no rows."""
    lines = [
        '{"x": 1, "t": "é", "u": {"a": [1]}}',
        "",
        '  {"t": null, "x": NaN}',
        '{"x": Infinity, "late": 12345678901234567890}',
        json.dumps({"x": 2, "t": "y" * LONG}),
    ]
    content = b"\xef\xbb\xbf" + "\r\n".join(lines).encode()
    rows = opened(tmp_path / "rows.jsonl", content)
    assert rows.columns == ["x", "t", "u", "late"]
    found = read(rows)
    assert [row["t"] for row in found] == ["é", None, None, "y" * LONG]
    assert [row["u"] for row in found] == ['{"a": [1]}', None, None, None]
    assert [row["late"] for row in found] == [None, None, "12345678901234567890", None]
    assert [row["x"] for row in found] == [1.0, None, math.inf, 2.0]
    assert rows.line_of is not None
    assert [rows.line_of(i) for i in range(4)] == [1, 3, 4, 5]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed(tmp_path, ending, pack):
    file = tmp_path / f"rows.jsonl{ending}"
    assert read(opened(file, pack(GOOD * 3))) == [{"x": 1.5, "t": "a"}] * 3
    torn = pack(GOOD * 3)
    with pytest.raises(ConfigError, match="damaged"):
        read(opened(file, torn[: len(torn) // 2]))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(width=32),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)


def as_texts(batch: Any) -> list[list[bytes]]:
    return model_rows(batch, {"x": "string"}, NumberTexts()).columns["x"].to_pylist()


@given(st.lists(SCALARS | st.lists(SCALARS, max_size=3), max_size=8))
@example([False, math.nan])
@example([math.nan, []])
@example([math.inf, "x"])
def test_a_text_does_not_depend_on_the_rows_beside_it(values):
    """A column learned as text gets one text of a value, whatever else is in its batch."""
    rows = [JsonRow(i, {"x": value}) for i, value in enumerate(values)]
    together = json_batch(rows, ["x"])
    found = model_rows(together, {"x": "string"}, NumberTexts()).columns["x"].to_pylist()
    for row, text in zip(rows, found, strict=True):
        alone = (
            model_rows(json_batch([row], ["x"]), {"x": "string"}, NumberTexts())
            .columns["x"]
            .to_pylist()
        )
        several = isinstance(row.values["x"], list) and len(row.values["x"]) > 1
        assert [text] == alone or (several and len(text) == len(alone[0]))


@given(st.lists(st.dictionaries(st.sampled_from("xt"), SCALARS), min_size=1))
def test_rows_that_python_writes_are_read(tmp_path_factory, rows):
    """Reference: what `json.dumps` was given."""
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = [row.values for row in json_rows(file, "rows")]
    assert len(found) == len(rows)
    for read_row, row in zip(found, rows, strict=True):
        assert read_row.keys() == row.keys()
        for value, expected in zip(read_row.values(), row.values(), strict=True):
            missing = isinstance(expected, float) and math.isnan(expected)
            assert value == (None if missing else expected)
            assert missing or type(value) is type(expected)


def test_numbers_of_a_column_whose_texts_have_a_format(tmp_path):
    """A number is what it is: 1.234 is not a text that a format would read as 1234."""
    options = CsvOptions.model_validate({"formatted": {"x": {"thousands": ".", "decimal": ","}}})
    rows = [JsonRow(1, {"x": 1.234}), JsonRow(2, {"x": 2})]
    batch = json_batch(rows, ["x"], {"x": "float"}, formatted=options.formatted)
    found = model_rows(batch, {"x": "float"}, NumberTexts(formats=options.formatted))
    assert [value for (value,) in found.columns["x"].to_pylist()] == pytest.approx([1.234, 2.0])
    rows.append(JsonRow(3, {"x": "1.234,5"}))
    with pytest.raises(ValueError, match="line 1 to 3: column 'x' has texts among numbers"):
        json_batch(rows, ["x"], {"x": "float"}, formatted=options.formatted)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row.values)}\n" for row in rows))
    opened_rows = open_rows([file], "rows.jsonl", "jsonl", options, skip=False)
    with pytest.raises(
        ConfigError, match=r"--data: rows\.jsonl, line 1 to 3: column 'x' has texts"
    ):
        read(opened_rows)


@given(st.lists(st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(width=32)))
@example([0.5, 2**53 + 1])
def test_whole_numbers_are_not_rounded(values):
    """Among numbers of other types too; what is not a whole number is wrong or missing."""
    rows = [JsonRow(i, {"x": value}) for i, value in enumerate(values)]
    batch = json_batch(rows, ["x"], {"x": "int"})
    found = model_rows(batch, {"x": "int"}, NumberTexts())
    for row, held in zip(found.rows.tolist(), found.columns["x"].to_pylist(), strict=True):
        if held:
            assert held == [int(values[row])]
            assert held == [values[row]]
