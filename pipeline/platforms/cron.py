"""A cron expression of five fields: validate it, and convert it for Kubeflow and Vertex.

Only syntax with the same meaning on both platforms is accepted: numbers, names of months and days,
`*`, ranges, steps and lists. Kubeflow's server reads six fields, seconds first (robfig/cron 1), and
accepts only 0 as Sunday.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass

from pipeline.common.errors import ConfigError

_EXAMPLE = '"0 3 * * *" is 03:00 every day, "30 6 * * 1-5" 06:30 from Monday to Friday'
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


@dataclass(frozen=True)
class CronSchedule:
    """When a schedule starts a run.

    Attributes:
        expression: Five fields with numbers only.
        timezone: Name in the IANA time zone database; None: the platform's time zone.
    """

    expression: str
    timezone: str | None = None

    @classmethod
    def parse(cls, text: str, timezone: str | None = None) -> CronSchedule:
        """Check an expression and a time zone.

        Args:
            text: Five fields: minute, hour, day of the month, month, day of the week.
            timezone: A time zone, such as Europe/Berlin.

        Raises:
            ConfigError: A field is not valid, the date never occurs, or the time zone is unknown.
        """
        fields = text.split()
        if len(fields) != len(_FIELDS):
            raise ConfigError(
                f"--schedule {text!r}: has {len(fields)} fields; give 5: minute, hour, day of the "
                f"month, month, day of the week. {_EXAMPLE}."
            )
        values = [_values(text, part, field) for part, field in zip(fields, _FIELDS, strict=True)]
        _, _, days, months, _ = values
        if fields[4] == "*" and not any(
            day <= _LONGEST_MONTH[month - 1] for day in days for month in months
        ):
            raise ConfigError(
                f"--schedule {text!r}: there is no such date, no run would start. {_EXAMPLE}."
            )
        plain = [_plain(part, field) for part, field in zip(fields, _FIELDS, strict=True)]
        if "7" in fields[4] or any(name in fields[4].upper() for name in _DAYS):
            # Sunday is 0 on Kubeflow, and a range such as 5-7 must be expanded.
            plain[4] = ",".join(map(str, sorted({day % 7 for day in values[4]})))
        return cls(" ".join(plain), _checked_zone(timezone))

    @property
    def kubeflow(self) -> str:
        """The expression with six fields, seconds first."""
        return f"0 {self.expression}"

    @property
    def vertex(self) -> str:
        """The expression with five fields, after the time zone."""
        return f"TZ={self.timezone} {self.expression}" if self.timezone else self.expression


def _checked_zone(timezone: str | None) -> str | None:
    if timezone is None:
        return None
    try:
        zoneinfo.ZoneInfo(timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"--timezone {timezone}: there is no such time zone; give a name such as Europe/Berlin "
            "or UTC."
        ) from None
    return timezone


def _values(text: str, part: str, field: _Field) -> set[int]:
    """Return the numbers that a field matches."""
    found: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        low_text, hyphen, high_text = span.partition("-")
        if span == "*":
            low, high = field.low, field.high
        else:
            low = _number(low_text, field)
            high = _number(high_text, field) if hyphen else low
        step = int(step_text) if step_text.isdecimal() and step_text.isascii() else 0
        is_range = span == "*" or bool(hyphen)
        step_is_valid = 1 <= step <= field.high - field.low if slash and is_range else not slash
        if low is None or high is None or low > high or not step_is_valid:
            names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
            raise ConfigError(
                f"--schedule {text!r}: {item!r} is not a valid {field.name}; use *, numbers from "
                f"{field.low} to {field.high}{names}, ranges (2-5), steps (*/2) and "
                f"lists (1,3). {_EXAMPLE}."
            )
        found.update(range(low, high + 1, step or 1))
    return found


def _number(text: str, field: _Field) -> int | None:
    """Return a number of the field; None if the text is not one."""
    if text.upper() in field.names:
        return field.names.index(text.upper()) + field.low
    if not (text.isdecimal() and text.isascii() and len(text) <= 2):
        return None
    return int(text) if field.low <= int(text) <= field.high else None


def _plain(part: str, field: _Field) -> str:
    """Return a field with numbers in place of names."""
    plain = part.upper()
    for index, name in enumerate(field.names):
        plain = plain.replace(name, str(index + field.low))
    return plain
