"""Cron expressions: what is accepted, what it becomes for each platform, what is refused."""

from __future__ import annotations

import pytest

from pipeline.common.errors import ConfigError
from pipeline.platforms.cron import CronSchedule


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("0 3 * * *", "0 3 * * *"),
        ("  */15   0-6,20-22/2 1,15 * *  ", "*/15 0-6,20-22/2 1,15 * *"),
        ("30 6 * * 1-5", "30 6 * * 1-5"),
        ("30 6 * jan-mar mon-fri", "30 6 * 1-3 1,2,3,4,5"),
        ("0 0 * * 7", "0 0 * * 0"),  # Sunday is 0 alone on Kubeflow
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("0 0 31 2 1", "0 0 31 2 1"),  # the 31st of February, or a Monday
    ],
)
def test_expressions_become_numbers_that_both_platforms_read(text, expression):
    schedule = CronSchedule.parse(text)
    assert schedule.expression == expression
    assert schedule.kubeflow == f"0 {expression}"
    assert schedule.vertex == expression
    assert CronSchedule.parse(expression).expression == expression


def test_the_time_zone_precedes_the_fields_on_vertex():
    schedule = CronSchedule.parse("0 3 * * *", "Europe/Berlin")
    assert schedule.vertex == "TZ=Europe/Berlin 0 3 * * *"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 fields; give 5"),
        ("0 0 3 * * *", "has 6 fields; give 5"),
        ("@daily", "has 1 fields"),
        ("60 3 * * *", r"'60' is not a valid minute; .* 0 to 59"),
        ("0 24 * * *", r"'24' is not a valid hour"),
        ("0 3 0 * *", r"'0' is not a valid day of the month; .* 1 to 31"),
        ("0 3 * 13 *", r"'13' is not a valid month; .* 1 to 12 or JAN to DEC"),
        ("0 3 * * 8", r"'8' is not a valid day of the week"),
        ("0 3 * * ?", r"'\?' is not a valid day of the week"),
        ("0 3 L * *", r"'L' is not a valid day of the month"),
        ("0 3 * * mond", r"'mond' is not a valid day of the week"),
        ("5-1 3 * * *", r"'5-1' is not a valid minute"),
        ("5/2 3 * * *", r"'5/2' is not a valid minute"),
        ("*/0 3 * * *", r"'\*/0' is not a valid minute"),
        ("*/60 3 * * *", r"'\*/60' is not a valid minute"),
        ("1, 3 * * *", r"'' is not a valid minute"),
        ("-1 3 * * *", r"'-1' is not a valid minute"),
        ("² 3 * * *", r"'²' is not a valid minute"),
        ("0 3 31 2,4 *", "there is no such date"),
    ],
)
def test_expressions_that_a_platform_misreads_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        CronSchedule.parse(text)


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "../etc/passwd", "/etc/localtime"])
def test_unknown_time_zones_are_refused(zone):
    with pytest.raises(ConfigError, match="no such time zone"):
        CronSchedule.parse("0 3 * * *", zone)
