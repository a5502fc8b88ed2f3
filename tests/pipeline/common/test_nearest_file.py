"""A misspelt path is answered with the file that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.common.nearest_file import did_you_mean


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("data/huses.csv", "data/houses.csv"),
        ("data/Houses.CSV", "data/houses.csv"),
        ("dta/houses.csv", "data"),
        ("data/houses.csv/x", "data/houses.csv"),
        ("data/other.parquet", None),
        ("/no/such/place", None),
    ],
)
def test_the_nearest_name_is_offered(tmp_path: Path, wrong: str, meant: str | None):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "houses.csv").write_text("a\n1\n")
    found = did_you_mean(tmp_path / wrong)
    assert found == ("" if meant is None else f"Did you mean {tmp_path / meant}? ")
