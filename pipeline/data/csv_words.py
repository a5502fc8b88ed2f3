"""Words among numbers or dates that represent a missing value, and words that may not."""

from __future__ import annotations

import re
from collections.abc import Mapping

RARE = 0.1  # of a column's cells, together: more of them may have a meaning
FEW_WORDS = 20  # distinct words
_ENOUGH = 20  # numbers or dates; with fewer, an unknown word is not rare
_LONGEST = 60  # characters
_MISSING = {
    *("-", "--", "---", ".", "..", "...", "*", "?", "_", "/", "n/a", "na", "n.a.", "n.a", "#n/a"),
    *("#na", "<na>", "<n/a>", "nan", "nat", "null", "(null)", "#null!", "#value!", "#div/0!"),
    *("#ref!", "\u2013", "\u2014"),
}
_OFTEN_MISSING = {
    *("none", "nil", "unknown", "missing", "undefined", "unavailable", "not available", "tbd"),
    *("(blank)", "blank", "empty", "unspecified", "not applicable"),
}
_ZERO_DATE = re.compile(r"0+([-./]0+){2}([ T]0+:0+(:0+(\.0+)?)?)?")
_CENSORED = re.compile(r"([<>\u2264\u2265~]=?\s*[\d.,]+|[\d.,]+\s*\+)")


def missing_words(words: Mapping[str, int], values: int) -> list[str] | None:
    """Return the words among a column's numbers or dates if all of them represent missing values.

    Words such as `n/a` may fill up to half of the cells. Other words together may fill a tenth, if
    they have no digits (as codes have) or are censored numbers such as `<5`.

    Args:
        words: Words without surrounding spaces, with the number of their cells.
        values: Number of cells with numbers or dates.

    Returns:
        The words, or None if any word may have a meaning.
    """
    if sum(words.values()) > values or len(words) > FEW_WORDS:
        return None
    others = {word: cells for word, cells in words.items() if not _means_missing(word)}
    if sum(others.values()) > RARE * (values + sum(words.values())):
        return None
    unknown = [word for word in others if word.lower() not in _OFTEN_MISSING]
    if unknown and (values < _ENOUGH or not all(map(_may_mean_missing, unknown))):
        return None
    return list(words)


def _means_missing(word: str) -> bool:
    return word.lower() in _MISSING or _ZERO_DATE.fullmatch(word) is not None


def _may_mean_missing(word: str) -> bool:
    if len(word) > _LONGEST:
        return False
    return not any(map(str.isdigit, word)) or _CENSORED.fullmatch(word) is not None
