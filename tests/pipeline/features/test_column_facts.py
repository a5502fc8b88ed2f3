"""Facts are those of all rows, whatever the sample. Reference: pandas and numpy on all rows."""

from __future__ import annotations

import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecords import write_tfrecord

from pipeline.cli.cli import main
from pipeline.features.column_facts import DataFacts, _ColumnCounter, measure

ROWS = 6_000
SAMPLE = 500
KEY = 1_577_134_800_018_226_901  # float64 has one value for 256 such integers


def table() -> pd.DataFrame:
    """What a sample gets wrong: late values, one row of a class, half of the rows every other."""
    random = np.random.default_rng(7)
    late = np.arange(ROWS) >= ROWS - 40
    days = pd.to_datetime("2023-03-01") + pd.to_timedelta(np.arange(ROWS) // 27, unit="D")
    return pd.DataFrame(
        {
            "late": np.where(late, np.nan, random.normal(1e6, 1.0, ROWS)),
            "alternating": np.arange(ROWS) % 2 * 5,
            "kind": np.where(np.arange(ROWS) == ROWS - 3, "once", random.choice(["a", "b"], ROWS)),
            "day": days.strftime("%d.%m.%Y"),
            "ordered": (days + pd.Timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M:%S"),
            "seen": days.astype("int64") // 10**9 + 3600 * (np.arange(ROWS) % 2),
            "whole": np.where(late, np.nan, random.integers(0, 40, ROWS)),
            "key": KEY + np.arange(ROWS) % 40,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    frame = table()
    frame.to_csv(folder / "t.csv", index=False)
    frame.astype({"key": "uint64"}).to_parquet(
        folder / "t.parquet", index=False, row_group_size=1_000
    )
    frame.to_feather(folder / "t.arrow", compression="uncompressed")
    write_tfrecord(folder / "t.tfrecord", frame.to_dict("records"))
    return folder


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "tfrecord"])
def test_facts_are_those_of_all_rows(folder: Path, ending: str) -> None:
    data = measure(str(folder / f"t.{ending}"), max_rows=SAMPLE)
    frame = table()
    assert (data.rows, data.every) == (ROWS, 16)
    assert SAMPLE / 3 < data.sample_rows < 1.5 * SAMPLE
    facts = {column.name: column for column in data.columns}
    assert list(facts) == (sorted(frame) if ending == "tfrecord" else list(frame))
    assert facts["late"].missing == 40
    assert facts["late"].numbers is not None
    assert facts["late"].numbers.std == pytest.approx(1.0, abs=0.1)  # of the sample
    exact = 1e-9 if ending == "csv" else 0.07  # float32 files hold a million to 0.06
    assert facts["late"].numbers.maximum == pytest.approx(frame["late"].max(), abs=exact)
    assert facts["alternating"].texts is not None
    assert facts["alternating"].texts.top == (("0", ROWS // 2), ("5", ROWS // 2))
    assert facts["kind"].texts is not None
    assert dict(facts["kind"].texts.top) == frame["kind"].value_counts().to_dict()
    assert facts["whole"].numbers is not None
    assert facts["whole"].numbers.distinct == 40
    assert facts["whole"].numbers.whole
    assert not facts["late"].numbers.whole
    key, texts = facts["key"].numbers, facts["key"].texts
    assert key is not None
    assert texts is not None
    assert (key.minimum, key.maximum, key.distinct) == (KEY, KEY + 39, 40)
    assert key.at(50) - KEY == pytest.approx(19.5, abs=2.0)  # of the sample
    assert dict(texts.top) == {str(KEY + i): ROWS // 40 for i in range(40)}
    for name, form, unit in (
        *(("day", "%d.%m.%Y", None), ("ordered", None, None)),
        ("seen", None, "seconds"),
    ):
        dates = facts[name].dates
        assert dates is not None
        last = datetime.date(2023, 3, 1) + datetime.timedelta(days=(ROWS - 1) // 27)
        assert (dates.first, dates.last) == (datetime.date(2023, 3, 1), last)
        assert (dates.form, dates.unit) == (form, unit)
        assert {"weekday", "day", "month"} <= set(dates.varying)
        assert "year" not in dates.varying
        assert ("hour" in dates.varying) == (name == "seen")  # `ordered` is at nine, always


def test_init_prints_counts_of_all_rows(folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    from pipeline.features import first_config

    def small(path: str, **options: object) -> DataFacts:
        return measure(path, max_rows=SAMPLE, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(first_config, "measure", small)
    output = tmp_path / "t.yaml"
    command = ["init", "--data", str(folder / "t.csv"), "--output", str(output)]
    assert main([*command, "--label", "late"]) == 0
    assert "40 of 6,000 rows have no value in late" in capsys.readouterr().out
    text = output.read_text()
    assert "2023-03-01 to 2023-10-09, as '01.03.2023'" in text
    assert "are of a sample of" in " ".join(text.replace("#", "").split())
    assert f"evenly spread over {KEY} to {KEY + 39}" in text
    assert main([*command, "--label", "key", "--force"]) == 0  # `run` sees that it varies
    assert main([*command, "--label", "kind", "--force"]) == 0
    assert "Rows of 'once': 1." in output.read_text()


any_int, close_int = st.integers(-(2**63), 2**63 - 1), st.integers(KEY, KEY + 9)
numbers = st.one_of(
    st.lists(st.one_of(st.none(), any_int, close_int), max_size=60), st.lists(close_int)
)


@settings(max_examples=60)
@given(numbers, st.integers(1, 60))
def test_blocks_of_any_size_give_the_same(values: list[int | None], size: int) -> None:
    """Reference: all values at once."""
    counter = _ColumnCounter("int", limit=1_000)
    for start in range(0, len(values), size):
        counter.add(pa.array(values[start : start + size], pa.int64()))
    present = [value for value in values if value is not None]
    assert (counter.rows, counter.missing) == (len(values), len(values) - len(present))
    assert counter.distinct.distinct == len(set(present))
    if present:
        assert (counter.minimum, counter.maximum) == (min(present), max(present))
        rising = all(a < b for a, b in pairwise(present))
        assert counter.increasing == rising


@pytest.mark.parametrize("kind", ["int", "float", "string"])
@pytest.mark.parametrize("distinct", [3, 200_000])
def test_many_different_values_are_estimated(kind: str, distinct: int) -> None:
    """Within 4 standard errors of the k smallest hashes; exact where they are counted."""
    random = np.random.default_rng(distinct)
    counter = _ColumnCounter(kind, limit=4_000)  # type: ignore[arg-type]
    for _ in range(4):
        values = random.permutation(distinct)
        if kind == "string":
            counter.add(pa.array([f"value {v}" for v in values]))
        else:
            counter.add(pa.array(values * (1.5 if kind == "float" else 1)))
    if distinct == 3:
        assert counter.distinct.counts is not None
        assert set(counter.distinct.counts.values()) == {4}
    assert counter.distinct_values == pytest.approx(distinct, rel=0.032 if distinct > 3 else 0)


def test_what_transform_takes_as_missing_is_missing() -> None:
    floats = _ColumnCounter("float", limit=10)
    floats.add(pa.array([1.0, None, float("nan"), float("inf"), 2.0]))
    texts = _ColumnCounter("string", limit=10)
    texts.add(pa.array([["a", ""], [], None, [""], ["b", "c"]]))
    bytes_ = _ColumnCounter("string", limit=10)
    bytes_.add(pa.array([b"\xff", b"", b"ok"], pa.binary()))
    assert (floats.missing, floats.several) == (3, False)
    assert (texts.missing, texts.several) == (3, True)
    assert bytes_.distinct.counts == {"\ufffd": 1, "ok": 1}
