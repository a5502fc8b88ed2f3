"""Dates: formats, and the parts that predict a label."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.features.column_facts import measure
from pipeline.features.dates import DateFacts, DateParts, date_parts, text_dates
from transform.spec.encoders import _check_format as check_format


def test_formats_are_guessed() -> None:
    for values, form, doubt in [
        (["31.01.2020", "1.2.2021"], "%d.%m.%Y", None),
        (["01.02.2020", "1.2.2021"], "%d.%m.%Y", "%m.%d.%Y"),
        (["01/02/2020 10:30", "12/11/2021 00:00"], "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"),
        (["13/02/2020 10:30", "12/11/2021 00:00"], "%d/%m/%Y %H:%M", None),
        (["2020/01/31", "2020/2/1"], "%Y/%m/%d", None),
        (["31. January 2020", "1. February 2020"], "%d. %B %Y", None),
        (["Feb-01-2020"], "%b-%d-%Y", None),
        (["20200131", "20201201"], "%Y%m%d", None),
        (["1/31/20 5:30 PM", "2/1/20 12:00 AM"], "%m/%d/%y %I:%M %p", None),
        (["31.01.2020 10:00:01.25"], "%d.%m.%Y %H:%M:%S", None),
    ]:
        dates = text_dates(values)
        assert dates is not None, values
        assert (dates.form, dates.doubt, dates.example) == (form, doubt, values[0])
        check_format(form)
    for values in (["31.01.2020", "1/2/20"], ["32.01.2020"], ["1.2.3"], ["12345678"], []):
        assert text_dates(values) is None, values


@pytest.mark.parametrize(
    ("times", "varies"),
    [
        (["", " 12:05 AM"], False),  # a date without a time is at midnight, as 12 AM is
        ([" 12:05 AM", " 12:59 AM"], False),
        ([" 11:00 AM", " 11:00 PM"], True),
        (["T09:00", "T09:30Z"], False),
        (["", "T09:30"], True),
        ([" 10:00:01.25", " 11:00:01.5"], True),
    ],
)
def test_hours_of_times(times: list[str], varies: bool) -> None:
    form = "%Y-%m-%d" if "T" in "".join(times) else "%m/%d/%Y"
    days = [datetime.date(2013, 5, day).strftime(form) for day in (16, 17)]
    if times[0] == "":  # in several formats, unless they are ISO 8601
        times = times if form == "%Y-%m-%d" else [" 12:00 AM", times[1]]
    dates = text_dates([day + time for day in days for time in times])
    assert dates is not None
    assert (dates.first, dates.last) == (datetime.date(2013, 5, 16), datetime.date(2013, 5, 17))
    assert ("hour" in dates.varying) == varies


def frame_of(rows: int, *, step: str) -> pd.DataFrame:
    random = np.random.default_rng(0)
    at = pd.date_range("2023-03-01", periods=rows, freq=step)
    return pd.DataFrame({"at": at, "noise": random.normal(size=rows)})


def chosen(frame: pd.DataFrame, label: pd.Series, folder: Path, form: str = "iso") -> DateParts:
    at = frame["at"]
    if form == "seconds":
        written = at.astype("int64") // 10**9
    else:
        written = at.dt.strftime("%Y-%m-%dT%H:%M:%S" if form == "iso" else form)
    pd.DataFrame({"at": written, "y": label}).to_csv(folder / "t.csv", index=False)
    data = measure(str(folder / "t.csv"))
    (facts,) = (column for column in data.columns if column.name == "at")
    assert facts.dates is not None
    is_number = label.dtype.kind == "f"
    return date_parts(facts.dates, data.values["at"], data.values["y"], is_number=is_number)


@pytest.mark.parametrize("form", ["iso", "seconds", "%m/%d/%Y %I:%M %p"])
def test_parts_without_a_relation_are_dropped(tmp_path: Path, form: str) -> None:
    """5,000 hours from March to September: the label follows hour and weekday alone."""
    frame = frame_of(5_000, step="H")
    label = frame["at"].dt.hour + 5.0 * (frame["at"].dt.weekday == 2) + frame["noise"]
    found = chosen(frame, label, tmp_path, form)
    assert {"hour", "weekday"} <= set(found.parts)
    assert set(found.parts) | set(found.dropped) == {"hour", "weekday", "day", "month"}
    assert set(found.dropped) & {"day", "month"}
    assert not {"week", "day_of_year"} & set(found.parts)


def test_the_day_of_the_month_is_kept(tmp_path: Path) -> None:
    frame = frame_of(240, step="D")
    label = 3.0 * (frame["at"].dt.day > 24) + 0.3 * frame["noise"]
    assert chosen(frame, label, tmp_path).parts == ("weekday", "day", "month")


@pytest.mark.parametrize("rows", [12, 1_900])
def test_noise_drops_nothing_of_few_rows(tmp_path: Path, rows: int) -> None:
    frame = frame_of(rows, step="25H")
    parts = chosen(frame, frame["noise"], tmp_path)
    assert parts.dropped == ()
    assert {"hour", "day"} <= set(parts.parts)
    assert not {"week", "day_of_year"} & set(parts.parts)


def test_a_date_keeps_its_parts_if_none_of_them_helps() -> None:
    """Of random labels: for some, the probe finds no use in any part."""
    start = datetime.date(2023, 3, 1)
    days = [start + datetime.timedelta(days=place % 200) for place in range(2_400)]
    facts = DateFacts(days[0], days[199], frozenset({"weekday", "month"}))
    for seed in range(8):
        labels = np.random.default_rng(seed).normal(size=len(days)).tolist()
        rows = [[[str(day)] for day in days], [[label] for label in labels]]
        assert date_parts(facts, *rows, is_number=True).parts


def test_a_weekend_takes_the_place_of_the_weekday(tmp_path: Path) -> None:
    frame = frame_of(300, step="D")
    label = pd.Series(np.where(frame["at"].dt.weekday >= 5, "shut", "open"))
    noisy = np.random.default_rng(1).uniform(size=len(label)) < 0.1
    found = chosen(frame, label.where(~noisy, "open"), tmp_path)
    assert "weekend" in found.parts
    assert "weekday" not in found.parts


@pytest.mark.parametrize(("rows", "step", "part"), [(1_100, "D", "week"), (9_000, "3H", "day_of")])
def test_a_season_is_finer_than_months(
    tmp_path: Path, capsys, rows: int, step: str, part: str
) -> None:
    """Three years on a sine: weeks where days are few, days of the year where each has rows."""
    frame = frame_of(rows, step=step)
    angle = frame["at"].dt.dayofyear * (2 * math.pi / 366)
    holiday = 40.0 * frame["at"].dt.dayofyear.isin([100, 185, 222, 307, 359]) * (step == "3H")
    label = 10.0 * np.sin(angle) + holiday + 0.5 * frame["noise"]
    assert any(found.startswith(part) for found in chosen(frame, label, tmp_path).parts)
    output = tmp_path / "t.yaml"
    command = ["init", "--data", str(tmp_path / "t.csv"), "--label", "y", "--output", str(output)]
    assert main(command) == 0, capsys.readouterr().err
    (group,) = load_config(output).features.groups
    assert group.encode is not None
    assert group.encode.date is not None
    assert group.encode.date.parts[-1].startswith(part)


def test_dates_that_never_change_are_left_out(tmp_path: Path, capsys) -> None:
    frame = pd.DataFrame({"at": ["2023-05-01", "2023-05-01 00:00"] * 50, "x": np.arange(100) / 7})
    frame["y"] = frame["x"] % 3
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["init", "--data", str(tmp_path / "t.csv"), "--label", "y"]
    assert main([*command, "--output", str(tmp_path / "t.yaml")]) == 0
    assert "a date whose parts do not vary" in " ".join(capsys.readouterr().out.split())
