"""Detect columns of free text: several words per row, and words that other rows also have.

Only values decide, not names. Codes, URLs, UUIDs and names of people or things have fewer than five
words per row: the Titanic's `Name` ("Braund, Mr. Owen Harris") has four, and 891 rows are too few
for a network to learn its words. Random words do not repeat; the words of a template ("order 17,
placed by phone for ...") are in every row.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import NamedTuple

from pipeline.features.column_facts import Rows

SEVERAL = 5.0  # words per text on average
COME_AGAIN = 0.5  # share of the words that are in `_AGAIN` rows or more, but not in nearly all
_AGAIN, _AGAIN_SHARE = 3, 0.001
_NEARLY_ALL = 0.9  # of the rows
_MOST_ROWS = 5_000
_MOST_CHARACTERS = 10_000  # of a text
_FEWEST_TERMS, _MOST_TERMS = 16, 256
# Approximates the tokens of transform/encode/lookup.py, which needs TensorFlow.
_ALONE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_WORD = re.compile(r"[^\W_]+")


class FreeText(NamedTuple):
    """Statistics of a column of free text.

    Attributes:
        words: Words per text on average.
        again: Share of the words that are in `least` rows or more, but not in nearly all.
        least: Minimum number of rows.
        max_terms: Positions that hold the known terms of 95 % of the texts; a power of two.
    """

    words: float
    again: float
    least: int
    max_terms: int


def free_text(rows: Rows) -> FreeText | None:
    """Return the statistics of a text column; None if it is not free text.

    Args:
        rows: The values of each row of a sample, None for none.
    """
    present = [row[0] for row in rows if row]
    texts = [_plain(text) for text in present[:: max(1, -(-len(present) // _MOST_ROWS))]]
    if not texts:
        return None
    words = sum(_number_of_words(text) for text in texts) / len(texts)
    if words < SEVERAL:
        return None
    terms = [_terms(text) for text in texts]
    in_rows = Counter(term for row in terms for term in row)
    least = max(_AGAIN, round(_AGAIN_SHARE * len(texts)))
    single = {term: count for term, count in in_rows.items() if "_" not in term}
    most = _NEARLY_ALL * len(texts)
    come_again = sum(n for n in single.values() if least <= n <= most)
    again = come_again / max(1, sum(single.values()))
    if again < COME_AGAIN:
        return None
    known = sorted(sum(in_rows[term] >= 2 for term in row) for row in terms)
    wanted = known[int(0.95 * (len(known) - 1))]
    places = _FEWEST_TERMS
    while places < min(wanted, _MOST_TERMS):
        places *= 2
    return FreeText(words, again, least, places)


def _plain(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return _ALONE.sub(r" \g<0> ", text[:_MOST_CHARACTERS].lower())


def _number_of_words(text: str) -> int:
    """Return the number of space-separated words with a letter; a URL or a UUID is one."""
    return sum(any(map(str.isalpha, word)) for word in text.split())


def _terms(text: str) -> set[str]:
    """Return the distinct words and pairs of adjacent words."""
    words = _WORD.findall(text)
    return {*words, *map("_".join, itertools.pairwise(words))}
