"""Numbers that a CSV column writes for people: the forms that its texts suggest, and its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.data.csv_readings import Reading
from pipeline.data.csv_words import missing_words

if TYPE_CHECKING:
    from components.arrow_example_gen.number_format import NumberFormat

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
_MOST = 0.5  # of the texts that a form is looked for in
_IDS = re.compile(
    r"(^|[_\W])(ids?|codes?|tags?|items?|lists?|keys?|zip|post(al)?code|phone|tel|telephone|mobile"
    r"|fax|version|isbn|iban|members|indices)([_\W]|$)",
    re.IGNORECASE,
)
_LONG_ID = 11  # characters, separators among them: numbers of one such length are ids


def possible_units(texts: Sequence[str]) -> list[str]:
    """The currencies or % in a column's texts; [""] where they are numbers without; [] for none."""
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
    """One for each form that numbers with a unit may have, the plainest first."""
    from components.arrow_example_gen.number_format import NumberFormat

    return [
        Reading(NumberFormat(unit=unit, thousands=thousands, decimal=decimal))
        for decimal in (".", ",")
        for thousands in ("", ",", ".", " ", "'")
        if thousands != decimal
    ]


def holding(name: str, readings: Sequence[Reading]) -> list[Reading]:
    """Those that all cells of a column have but for words without a value, one of each mark.

    Ids may look like numbers in groups: a column that is called so, or whose texts are all of one
    length, as of phone numbers, has none.
    """
    found: dict[str, Reading] = {}
    for reading in readings:
        form = reading.form
        if form is None or isinstance(form, str) or reading.many or not reading.values:
            continue
        if missing_words(reading.words, reading.values) is None or _are_ids(name, form, reading):
            continue
        best = found.get(form.decimal)
        if best is None or best.values < reading.values:
            found[form.decimal] = reading
    return list(found.values())


def _are_ids(name: str, form: NumberFormat, reading: Reading) -> bool:
    if form.unit:
        return False
    alike = reading.lengths is not None and reading.lengths[0] == reading.lengths[1] >= _LONG_ID
    return alike or _IDS.search(name) is not None


def read_alike(readings: Sequence[Reading]) -> bool:
    """Whether either decimal mark gives the same numbers: none has one."""
    counts = [reading.counts for reading in readings]
    return (
        all(c is not None and c.whole == c.present for c in counts)
        and len({c.whole for c in counts if c is not None}) == 1
    )
