"""Dates: their formats and the parts that vary."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.cli.cli import main
from pipeline.features.dates import text_dates
from transform.spec.encoders import _check_format as check_format


def test_formats_are_guessed() -> None:
    for values, form, doubt in [
        (["31.01.2020", "1.2.2021"], "%d.%m.%Y", None),
        (["01.02.2020", "1.2.2021"], "%d.%m.%Y", "%m.%d.%Y"),
        (["01/02/2020 10:30", "12/11/2021 00:00"], "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"),
        (["31. January 2020", "1. February 2020"], "%d. %B %Y", None),
        (["20200131", "20201201"], "%Y%m%d", None),
        (["1/31/20 5:30 PM", "2/1/20 12:00 AM"], "%m/%d/%y %I:%M %p", None),
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
        ([" 11:00 AM", " 11:00 PM"], True),
        (["", "T09:30"], True),
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


def test_dates_that_never_change_are_left_out(tmp_path: Path, capsys) -> None:
    frame = pd.DataFrame({"at": ["2023-05-01", "2023-05-01 00:00"] * 50, "x": np.arange(100) / 7})
    frame["y"] = frame["x"] % 3
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["init", "--data", str(tmp_path / "t.csv"), "--label", "y"]
    assert main([*command, "--output", str(tmp_path / "t.yaml")]) == 0
    assert "a date whose parts do not vary" in " ".join(capsys.readouterr().out.split())
