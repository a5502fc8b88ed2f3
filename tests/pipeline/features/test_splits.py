"""Tables whose rows follow each other in time get `split: {by: time}`, and others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.features.column_facts import measure
from pipeline.features.splits import time_order

ROWS = 400
RANDOM = np.random.default_rng(5)
FIVE_MINUTES = pd.date_range("2024-03-01", periods=ROWS, freq="5min")
DAYS = pd.date_range("2022-01-01", periods=ROWS, freq="D")
SHUFFLED = RANDOM.permutation(ROWS)
EVENTS = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(RANDOM.integers(0, 10**7, ROWS)), "s")
BORN = pd.Timestamp("1950-01-01") + pd.to_timedelta(RANDOM.integers(0, 20_000, ROWS), "D")
MONTHS = pd.date_range("1990-01-01", periods=ROWS, freq="MS")
SHOPS = pd.DatetimeIndex(np.tile(DAYS[:40], 10))  # ten shops, one after the other
HALVES = np.where(np.arange(ROWS) % 2 == 0, "a", "b")


def order_of(folder: Path, times: Any, label: Any = None, **more: Any) -> Any:
    frame = pd.DataFrame({"x": RANDOM.normal(size=len(times)), "when": times})
    frame["y"] = RANDOM.normal(size=len(times)) if label is None else label
    frame.to_csv(folder / "t.csv", index=False)
    data = measure(str(folder / "t.csv"), **more)
    return time_order(data, "y", held_out=20, classes=label is not None)


@pytest.mark.parametrize(
    "times",
    [
        FIVE_MINUTES.strftime("%Y-%m-%dT%H:%M:%SZ")[SHUFFLED],
        FIVE_MINUTES.astype("int64") // 10**9,
        MONTHS.strftime("%Y-%m-%d")[SHUFFLED],
        EVENTS.strftime("%Y-%m-%d %H:%M:%S"),
        SHOPS.strftime("%Y-%m-%d")[SHUFFLED],
    ],
)
def test_rows_in_time(tmp_path: Path, times: Any) -> None:
    assert order_of(tmp_path, times) == ("when", "")


@pytest.mark.parametrize(
    "times",
    [
        BORN.strftime("%Y-%m-%d"),
        DAYS.strftime("%Y-%m-%d").where(np.arange(ROWS) % 3 == 0),
        np.arange(ROWS) + 1_700_000_000,
    ],
)
def test_dates_that_describe_a_row(tmp_path: Path, times: Any) -> None:
    assert order_of(tmp_path, times) is None


def test_a_series_is_seen_in_a_sample(tmp_path: Path) -> None:
    days = pd.date_range("1900-01-01", periods=4_000, freq="h").strftime("%Y-%m-%dT%H:%M:%S")
    random = RANDOM.permutation(4_000)
    assert order_of(tmp_path, days[random], max_rows=600) == ("when", "")
    assert order_of(tmp_path, days[random // 3], max_rows=600) is None


@pytest.mark.parametrize(
    ("times", "label", "problem"),
    [
        (DAYS.strftime("%d.%m.%Y"), None, "and not '01.01.2022'"),
        (DAYS.strftime("%Y-%m-%d").where(np.arange(ROWS) != 7), None, "1 row has no time"),
        (
            DAYS.strftime("%Y-%m-%dT%H:%M") + np.where(np.arange(ROWS) % 9 == 0, "Z", ""),
            None,
            "only some of its times have an offset",
        ),
        (DAYS.strftime("%Y-%m-%d"), np.where(np.arange(ROWS) > 300, "a", HALVES), "one class"),
        (DAYS.strftime("%Y-%m-%d"), np.where(np.arange(ROWS) > 390, "c", HALVES), "or others"),
        (DAYS.strftime("%Y-%m-%d"), HALVES, ""),
    ],
)
def test_a_split_by_time_that_cannot_be(
    tmp_path: Path, times: Any, label: Any, problem: str
) -> None:
    column, why = order_of(tmp_path, times, label)
    assert (column, bool(why)) == ("when", bool(problem))
    assert problem in why


def test_init_writes_the_split_or_why_not(tmp_path: Path, capsys: Any) -> None:
    """Of Parquet, whose timestamps become ISO texts."""
    births = pd.DataFrame({"day": DAYS, "births": RANDOM.poisson(900, ROWS)}).iloc[SHUFFLED]
    births["x"] = RANDOM.normal(size=ROWS)
    file, output = tmp_path / "t.parquet", tmp_path / "t.yaml"
    births.to_parquet(file, index=False)
    command = ["init", str(file), "--label", "births", "--output", str(output), "--force"]
    assert main(command) == 0
    data = load_config(output).data
    assert (data.split.by, data.split.column, data.eval_percent) == ("time", "day", 20)
    assert "# Rows follow each other in time by 'day': the latest 20 % are held out." in (
        output.read_text()
    )
    births["day"] = births.day.dt.strftime("%d.%m.%Y")
    births.to_parquet(file, index=False)
    capsys.readouterr()
    assert main(command) == 0
    assert load_config(output).data.split.by == "content"
    for shown in (capsys.readouterr().out, output.read_text()):
        assert "data.split: {by: time, column: day}" in " ".join(shown.replace("#", "").split())
