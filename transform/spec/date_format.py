"""Formats of dates, as the YAML has them: which directives there are, and which make a date."""

from __future__ import annotations

import re

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)

DIRECTIVES = ("Y", "y", "m", "b", "B", "d", "H", "I", "p", "M", "S")
_ONE_OF = (("Y", "y"), ("m", "b", "B"), ("d",))
_AT_MOST_ONE_OF = (("H", "I"),)


def directives(form: str) -> list[str]:
    """Return the letters behind the percent signs, in order, without `%%`."""
    return [part for part in re.findall(r"%(.)", form) if part != "%"]


def check_format(form: str) -> None:
    """Reject a format that is invalid, or that does not give a day.

    Raises:
        ValueError: names the directive and the fix.
    """
    what = f"date.format={form!r}"
    found = directives(form)
    known = ", ".join(f"%{letter}" for letter in DIRECTIVES)
    unknown = [letter for letter in found if letter not in DIRECTIVES]
    if unknown:
        raise ValueError(f"{what}: %{unknown[0]} is not supported; use of {known}")
    if re.sub(r"%.", "", form).endswith("%"):
        raise ValueError(f"{what} ends with a percent sign; write %% for one")
    for letters in (*_ONE_OF, *_AT_MOST_ONE_OF):
        several = [letter for letter in found if letter in letters]
        names = " or ".join(f"%{letter}" for letter in letters)
        if len(several) > 1:
            raise ValueError(
                f"{what} has {' and '.join('%' + s for s in several)}; use {names} once"
            )
        if not several and letters in _ONE_OF:
            raise ValueError(f"{what} does not give the day: it lacks {names}")
    repeated = [letter for letter in found if found.count(letter) > 1]
    if repeated:
        raise ValueError(f"{what} has %{repeated[0]} twice; use it once")
    if ("I" in found) != ("p" in found):
        raise ValueError(f"{what}: %I (1 to 12) and %p (AM or PM) go together; %H is 0 to 23")
