"""Units and human-readable formats of numbers in a CSV column (`$1,234.50`, `23.4%`)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.data.csv_readings import Reading
from pipeline.data.csv_words import missing_words

if TYPE_CHECKING:
    from components.arrow_example_gen.csv_options import NumberFormat

_CURRENCIES = {
    *("AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "INR", "JPY"),
    *("KRW", "MXN", "NOK", "NZD", "PLN", "RUB", "SEK", "SGD", "TRY", "USD", "ZAR", "Fr.", "Rs"),
    *("Rs.", "kr", "kr.", "z\u0142", "K\u010d", "Ft", "R$", "US$", "A$", "C$", "CA$", "AU$"),
    *("NZ$", "HK$", "S$", "NT$"),
}
_NUMBER = re.compile(
    r"[(+\-\u2212\s]*(?P<before>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?[(+\-\u2212\s]*"
    r"(?:\d[\d.,'\u2019\s]*|[.,]\d+)(?P<behind>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?[)\s]*"
    r"(?P<last>[^\d\s().,+\-\u2212][^\d\s(),+\-\u2212]{0,7})?"
)
_LONGEST = 60  # characters of such a number
_MOST = 0.5  # of the sampled texts must have the form
_IDS = re.compile(
    r"(^|[_\W])(ids?|codes?|tags?|items?|lists?|keys?|zip|post(al)?code|phone|tel|telephone|mobile"
    r"|fax|version|isbn|iban|members|indices)([_\W]|$)",
    re.IGNORECASE,
)
_LONG_ID = 11  # characters with separators; numbers of one such length are ids


def find_units(texts: Sequence[str]) -> list[str]:
    """Return the currencies or % in texts; [""] for numbers without one, [] for other texts."""
    found: dict[str, int] = {}
    for text in texts:
        match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None:
            continue
        signs = [sign for sign in match.groupdict().values() if sign]
        if len(signs) <= 1 and all(map(_is_unit, signs)):
            found[signs[0] if signs else ""] = found.get(signs[0] if signs else "", 0) + 1
    if sum(found.values()) < _MOST * len(texts) or not found:
        return []
    return [unit for unit in found if unit] or [""]


def _is_unit(sign: str) -> bool:
    return (
        sign == "%"
        or sign in _CURRENCIES
        or (len(sign) == 1 and unicodedata.category(sign) == "Sc")
    )


def readings_of(unit: str) -> list[Reading]:
    """Return a reading for each possible format of numbers with a unit, plainest first."""
    from components.arrow_example_gen.csv_options import NumberFormat

    return [
        Reading(NumberFormat(unit=unit, thousands=thousands, decimal=decimal))
        for decimal in (".", ",")
        for thousands in ("", ",", ".", " ", "'")
        if thousands != decimal
    ]


def select_formats(name: str, readings: Sequence[Reading]) -> list[Reading]:
    """Return the formats that fit all cells except missing-value words, one per decimal mark.

    Ids may look like grouped numbers: a column that is named like an id, or whose texts all have
    the same length, as phone numbers do, gets no format.
    """
    found: dict[str, Reading] = {}
    for reading in readings:
        form = reading.form
        if form is None or isinstance(form, str) or not reading.values:
            continue
        if missing_words(reading.words, reading.values) is None or _are_ids(name, form, reading):
            continue
        found.setdefault(form.decimal, reading)
    return list(found.values())


def _are_ids(name: str, form: NumberFormat, reading: Reading) -> bool:
    if form.unit:
        return False
    alike = reading.lengths is not None and reading.lengths[0] == reading.lengths[1] >= _LONG_ID
    return alike or _IDS.search(name) is not None


def give_same_numbers(readings: Sequence[Reading]) -> bool:
    """Return whether every reading gives the same numbers, which must be integers."""
    counts = [reading.counts for reading in readings]
    return (
        all(c is not None and c.whole == c.present for c in counts)
        and len({c.whole for c in counts if c is not None}) == 1
    )
