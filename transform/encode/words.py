r"""Texts -> words -> terms, with TensorFlow's own operations: serving computes the same.

A text is lower-cased (by Unicode, whatever the machine's locale) and cut at all that is no letter,
mark or number (Unicode's L, M, N): `Don't stop!` has the words don, t, stop; `#fire` has fire;
`http://t.co/a1` has http, t, co, a1; `3.14` has 3, 14. A symbol (So, which emoji are) and a Han,
Hiragana or Katakana character are each a word, since nothing separates them; Thai, Lao,
Khmer and Burmese, which have no spaces either, stay one word up to the next space. Bytes that are
no UTF-8 are dropped. No text is normalised (NFC): é as one character and as e with an accent are
two words.

A term is one word, or several in a row, joined by `_`, which no word holds.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

JOINER = "_"
# U+FFFD stands for invalid bytes; U+FE0E and U+FE0F choose how an emoji is drawn.
_NO_WORD = r"[^\pL\pM\pN\p{So}]+|[\x{FFFD}\x{FE0E}\x{FE0F}]"
_SINGLE_CHARACTER_WORD = r"([\p{So}\p{Han}\p{Hiragana}\p{Katakana}]\pM*)"


class TermCounts(NamedTuple):
    """Each different term of each row, row by row, in the order of the text.

    Attributes:
        terms: string `[terms]`.
        row: int64 `[terms]`, ascending.
        count: int64 `[terms]`: how often the row holds the term.
    """

    terms: tf.Tensor
    row: tf.Tensor
    count: tf.Tensor


def words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Return words of texts `[batch]`; string `[batch, (words)]`."""
    # ICU lower-cases I and U+0130 by the locale's language. ASCII is done without it, and U+0130
    # becomes what ICU makes of it everywhere but in Turkish and Azerbaijani.
    lower = tf.strings.regex_replace(tf.strings.lower(texts), "\u0130", "i\u0307")
    # tf.strings.lower takes a NUL for the end of the text.
    lower = tf.strings.regex_replace(lower, r"\x00", " ")
    lower = tf.strings.lower(lower, encoding="utf-8")
    spaced = tf.strings.regex_replace(lower, _NO_WORD, " ")
    return tf.strings.split(tf.strings.regex_replace(spaced, _SINGLE_CHARACTER_WORD, r" \1 "))


def term_counts(texts: tf.Tensor, *, ngrams: int) -> TermCounts:
    """Count the terms of each row.

    Args:
        texts: string `[batch]`.
        ngrams: words in a term at most.
    """
    found = words(texts)
    if ngrams > 1:
        found = tf.strings.ngrams(found, list(range(1, ngrams + 1)), separator=JOINER)
    row = found.value_rowids()
    # One pass over all rows: a term is unique together with its row.
    keys = tf.strings.join([tf.strings.as_string(row), found.values], separator=" ")
    unique, place, count = tf.unique_with_counts(keys, out_idx=tf.int64)
    n = tf.size(unique, out_type=tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys, out_type=tf.int64)), place, n)
    return TermCounts(tf.gather(found.values, first), tf.gather(row, first), count)
