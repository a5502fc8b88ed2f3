"""How a CSV file is written: what `init` finds and writes where the user reads it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from components import CsvOptions
from components.arrow_example_gen import csv_table
from pipeline.common.errors import ConfigError
from pipeline.data.csv_guess import guess_csv
from pipeline.data.tables import beyond_int64

LONG = "9" * 5000  # Python converts 4,300 digits at most
NUMBERS = "".join(f"{i},{i}.5\n" for i in range(60))


def test_whole_numbers_of_any_length_are_compared_with_int64():
    assert beyond_int64(["1", LONG]) == LONG
    assert beyond_int64(["0" * 5000 + "1", "-0", str(2**63 - 1), str(-(2**63))]) is None
    assert beyond_int64([LONG, "x"]) is None


def test_plain_files_need_nothing(tmp_path):
    (tmp_path / "rows.csv").write_text("a;b\n1;x\n")
    found = guess_csv([tmp_path / "rows.csv"])
    assert (found.options, found.section(), found.reasons) == (CsvOptions(), {}, [])


@pytest.mark.parametrize(
    ("content", "section", "reason"),
    [
        ("a,b\n1,é\n".encode("cp1252"), {"encoding": "cp1252"}, "cp1252 can read all"),
        (",a\n0,x\n1,y\n", {}, "the first column has no name and is left out."),
        (b"a,b\n1,\x81\n", {"encoding": "latin-1"}, "latin-1 can read all"),
        ("zip,n\n01234,1\n99999,2\n", {"text": ["zip"]}, "begin with 0 are codes: zip"),
        (
            "n,m\n" + NUMBERS + "61,Unknown\n62,--\n",
            {"missing_in": {"m": ["Unknown", "--"]}},
            "missing_in: 'Unknown' (1), '--' (1) among the 60 numbers of 'm': no value.",
        ),
        (
            "n,m\n" + NUMBERS + "61,B7\n62,C8\n",
            {"text": ["m"]},
            "'m' has texts among its numbers, 'B7' in 1 of 62 cells",
        ),
        (
            "n,m\n" + NUMBERS[: NUMBERS.index("15,")] + "15,nichts\n",
            {},
            "'m' has texts among its numbers, 'nichts' in 1 of 16 cells",
        ),
        (
            "n,day\n" + "".join(f"{i},2020-01-{i:02d}\n" for i in range(1, 29)) + "29,0000-00-00\n",
            {"missing_in": {"day": ["0000-00-00"]}},
            "missing_in: '0000-00-00' (1) among the 28 dates of 'day': no value.",
        ),
    ],
    ids=[
        *("cp1252", "index", "latin-1", "codes", "words", "texts", "a word among few"),
        "zero dates",
    ],
)
def test_what_is_found(tmp_path, content, section, reason):
    file = tmp_path / "rows.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = guess_csv([file])
    assert found.section() == section
    assert reason in " ".join([*found.reasons, *map(str, found.doubts)])


def test_codes_are_counted_in_all_blocks_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1024)
    monkeypatch.setattr(csv_table, "_BYTES_A_COLUMN", 1)
    cells = [f"X{i}" if i % 2 else f"{i}.5" for i in range(100)] + [f"{i}.5" for i in range(900)]
    (tmp_path / "rows.csv").write_text("n,m\n" + "".join(f"1,{cell}\n" for cell in cells))
    found = guess_csv([tmp_path / "rows.csv"])
    assert "'X1' and others in 50 of 1,000 cells" in str(found.doubts[0])


def test_what_is_no_csv_stays_an_error(tmp_path):
    (tmp_path / "rows.csv").write_bytes("a,b\n1,é\n1\n".encode("cp1252"))
    with pytest.raises(ConfigError, match=r"line 3: 1 cells under a header of 2"):
        guess_csv([tmp_path / "rows.csv"])
