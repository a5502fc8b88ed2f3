"""Detect ids among numbers: few of them are equal, given their density.

Amounts drawn from a distribution are sometimes equal: of m values in a range of w whole numbers,
m - w (1 - exp(-m / w)) equal another one on average. Ids are designed to differ. If ten or more
equal values are expected (between each two percentiles, so that the shape of the distribution is
known) and a fifth of them or fewer is found, the values are not amounts. So ids that are
consecutive, shuffled, with gaps or drawn from a dense range are detected without their name, and
populations, prices in cents or rounded salaries are not mistaken for ids.

If few equal values are expected, as for ids with many digits, the column is an id if its name says
so, or if all values have the same number of digits, nine or more. Amounts do not: they spread over
powers of ten. A hint of a name alone decides nothing: the values must agree.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

from pipeline.features.column_facts import ColumnFacts, Numbers

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


def _has(name: str, words: frozenset[str]) -> bool:
    return not words.isdisjoint(words_of(name))


def _entity_of(name: str) -> str | None:
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


_NEARLY_ALL = 0.9  # distinct values per row: above, an id may repeat in a row or two
_FEW_IDS = 10  # values: at most this many are a category, regardless of their name
_FEW_PLACES, _ROWS_OF_FEW, _ROWS_OF_MANY = 100, 20, 100
_EXPECTED = 10.0  # equal values: a Poisson count with that mean is 2 or less in 0.3 % of columns
_FOUND = 0.2


def id_reason(facts: ColumnFacts) -> str | None:
    """Return why integers that occur in about one row each are ids; None if they are not."""
    numbers, distinct = facts.numbers, distinct_of(facts)
    if numbers is None or not numbers.whole or distinct <= _FEW_IDS or numbers.minimum < 0:
        return None
    present, name = facts.present, facts.name
    about = "" if distinct == present or (facts.texts and facts.texts.exact) else "about "
    shown = f"{about}{distinct:,} different whole numbers in {present:,} rows"
    if distinct >= _NEARLY_ALL * present and is_id_name(name):
        return f"{shown}: ids, as the name says"
    if _has(name, _AMOUNT):  # `lot_area`, `PriceCents`, `year_built`
        return None
    equal = present - distinct
    if about and equal <= 0.02 * present:  # the error of the estimate
        equal = 0.02 * present
    expected = _expected_equal(numbers, present)
    dense = is_consecutive(numbers, present)
    if dense or (expected >= _EXPECTED and equal <= _FOUND * expected):
        chance = f"of amounts so close together, {expected:,.0f} would equal another one"
        return f"{shown}: ids ({'consecutive' if dense else chance})"
    if distinct < _NEARLY_ALL * present:
        return None
    digits = [len(str(int(numbers.at(percent)))) for percent in (2, 98)]
    if digits[0] == digits[1] >= 9:
        return f"{shown}, all of {digits[0]} digits: ids"
    weak = words_of(name)[-1:] and words_of(name)[-1] in _WEAK_ID  # `number`, `index`, `code`
    if weak and (equal <= _FOUND * expected or digits[0] == digits[1] > 5):
        return f"{shown}: ids, as the name says"
    return None


def repeated_id_reason(facts: ColumnFacts) -> str | None:
    """Return why repeated values identify a person or thing of several rows; else None.

    A model memorizes such values, which does not help with new ones. Stores and other places with
    many rows each stay a category, because they are the same when the model is used.
    """
    distinct = distinct_of(facts)
    if distinct <= _FEW_IDS or facts.several or not facts.present:
        return None
    if facts.numbers is not None and (not facts.numbers.whole or facts.numbers.minimum < 0):
        return None
    entity = _entity_of(facts.name)
    named = is_id_name(facts.name)
    if entity is None and not named:
        return None
    if facts.numbers is None and not named:
        labels = [text for text, _ in facts.texts.top] if facts.texts else []
        with_digits = sum(any(map(str.isdigit, text)) for text in labels)
        if entity == "place" or with_digits <= 0.9 * len(labels):
            return None  # names of products or devices are categories
    rows = facts.present / distinct
    many = rows >= _ROWS_OF_MANY or (distinct <= _FEW_PLACES and rows >= _ROWS_OF_FEW)
    if rows < 1.0 / _NEARLY_ALL or (entity != "person" and many):
        return None
    return (
        f"{distinct:,} ids, each in {rows:,.1f} rows on average: a model that learns them does "
        "not know new ones"
    )


def is_consecutive(numbers: Numbers, present: int) -> bool:
    """Return whether all numbers differ and hardly any in their range is missing."""
    return numbers.distinct == present and numbers.maximum - numbers.minimum < 1.1 * present


def distinct_of(facts: ColumnFacts) -> int:
    """Return the number of distinct values; 0 if unknown."""
    if facts.texts is not None:
        return facts.texts.distinct
    return facts.numbers.distinct if facts.numbers is not None else 0


def _expected_equal(numbers: Numbers, present: int) -> float:
    """Return the expected number of values equal to another in a distribution of this shape."""
    edges = numbers.percentiles
    each = present / (len(edges) - 1)
    widths = np.array([max(high - low, 1.0) for low, high in itertools.pairwise(edges)])
    return float(np.sum(each - widths * -np.expm1(-each / widths)))


def is_code(facts: ColumnFacts) -> bool:
    """Return whether a name's hint at codes agrees with the values: few, repeated, not amounts.

    `month` has 1 to 12. Codes of areas or groups come from a list: nearly consecutive, or all with
    the same number of digits. Amounts such as a lot's area are neither, and are often 0.
    """
    numbers, texts, name = facts.numbers, facts.texts, facts.name
    if numbers is None or texts is None or numbers.minimum < 0:
        return False
    for word in words_of(name)[-1:]:
        if word in _CALENDAR:
            return numbers.maximum <= _CALENDAR[word]
    distinct = max(1, texts.distinct)
    rows = facts.present / distinct
    span = numbers.maximum - numbers.minimum + 1
    from_list = span <= 2 * distinct or _digits(numbers.minimum) == _digits(numbers.maximum) >= 3
    is_category = _has(name, _CATEGORY)  # `zip_code`, `MSSubClass`
    if is_category and from_list:
        return rows >= 2
    is_smooth = texts.exact and rows >= 5 and _is_smooth(texts.top, distinct)
    if distinct > 1_000 or rows < 5 or is_smooth or numbers.zeros > 0.2 * facts.present:
        return False
    hinted = _has(name, _WEAK_CATEGORY) or _entity_of(name) is not None
    return is_category or (hinted and from_list)


def _digits(number: float) -> int:
    return len(str(int(number)))


def _is_smooth(top: tuple[tuple[str, int], ...], distinct: int) -> bool:
    """Return whether neighboring values have similar frequencies, as amounts do."""
    if distinct < 30 or len(top) < distinct:
        return False
    ordered = [math.log(count) for _, count in sorted(top, key=lambda each: int(each[0]))]
    with np.errstate(invalid="ignore"):
        return bool(np.corrcoef(ordered[1:], ordered[:-1])[0, 1] > 0.5)
