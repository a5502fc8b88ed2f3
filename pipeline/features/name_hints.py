"""Hints from the words of a column's name. A hint alone decides nothing: the values must agree."""

from __future__ import annotations

import re

_WORD_STARTS = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SHORT_ID = re.compile(
    r"[b-eg-pr-u]id|uuid|guid|(user|cust|customer|client|row|order|product|item|store|shop|patient|"
    r"case|record|session|account|acct|member|person|student|emp|employee|trip|house|household|hh|"
    r"subj|subject|loan|device|company|property|parcel)(id|no|num|nr|key)"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_SHORT_ID = _words("bid did hid kid lid mid rid aid")
_ID = _words("id ids identifier ident ssn isbn iban sku vin phone")
_WEAK_ID = _words("number no nr num index idx key row code ref reference serial")
_PEOPLE = _words(
    """subject patient case customer client user member person participant respondent student pupil
    employee worker driver rider player athlete account borrower applicant buyer seller donor animal
    device sensor"""
)
_WITH_ID = _words(
    """household family machine vehicle session visitor visit order invoice ticket transaction trip
    card cust emp hh subj acct loan house"""
)
_PLACES = _words(
    """store shop branch outlet site plant station hospital clinic school hotel restaurant vendor
    supplier merchant product item"""
)
_AMOUNT = _words(
    """price prices cost amount amt population pop area size sqft sf weight height distance salary
    income revenue sales total sum count counts time timestamp seconds minutes hours days elapsed
    duration age value balance rate score length width depth volume power energy temperature year
    date epoch ts at created updated mileage miles km odometer"""
)
_CALENDAR = {
    "hour": 24, "minute": 60, "second": 60, "day": 31, "weekday": 7, "dow": 7, "week": 53,
    "month": 12, "quarter": 4,
}  # fmt: skip
_CATEGORY = _words("code type kind class category zip zipcode postcode postal tract")
_WEAK_CATEGORY = _words(
    """area region district group id zone sector ward precinct state county station line department
    dept cluster segment territory"""
)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: `customerID_2` -> customer, id."""
    parts = re.split(r"[\W\d_]+", _WORD_STARTS.sub(" ", name))
    return [part.lower() for part in parts if part]


def is_id_name(name: str) -> bool:
    """Return whether the name says that the values are ids: `order_id`, `userid`, `PID`."""
    words = words_of(name)
    if not words:
        return False
    last = words[-1]
    short = _SHORT_ID.fullmatch(last) is not None and last not in _NOT_SHORT_ID
    return last in _ID or short or ("id" in words[:1] and len(words) > 1)


def may_be_id_name(name: str) -> bool:
    """Return whether it ends like names of ids and of other numbers: `number`, `index`, `code`."""
    words = words_of(name)
    return bool(words) and words[-1] in _WEAK_ID


def entity_of(name: str) -> str | None:
    """Return "person" or "place" if the values identify one: `customer`, `store_no`; else None.

    A word that is followed by a word other than "id" or "number" describes something else:
    `customer_age`.
    """
    words = words_of(name)
    said = is_id_name(name)
    while len(words) > 1 and (words[-1] in _ID or words[-1] in _WEAK_ID):
        words.pop()
        said = True
    if len(words) > 1 and words[0] in _ID:
        words = words[1:]
    if not words:
        return None
    last = _SHORT_ID.sub(lambda found: found[1] or found[0], words[-1])
    if last in _PEOPLE or (said and last in _WITH_ID):
        return "person"
    return "place" if last in _PLACES else None


def is_amount_name(name: str) -> bool:
    """Return whether it has a word for amounts: `lot_area`, `PriceCents`, `year_built`."""
    return any(word in _AMOUNT for word in words_of(name))


def calendar_size(name: str) -> int | None:
    """Return the number of values of the date part that ends the name; None without one."""
    words = words_of(name)
    return next((_CALENDAR[word] for word in words[-1:] if word in _CALENDAR), None)


def is_category_name(name: str) -> bool:
    """Return whether it has a word for codes: `zip_code`, `MSSubClass`."""
    return any(word in _CATEGORY for word in words_of(name))


def may_be_category_name(name: str) -> bool:
    """Return whether it has a word for codes and for other numbers: `area`, `group`, `region`."""
    return any(word in _WEAK_CATEGORY for word in words_of(name))
