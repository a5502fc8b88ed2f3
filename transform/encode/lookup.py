r"""Texts -> ids by their place among known texts, learned or listed; names of their files.

Texts become words and terms by TensorFlow's own operations, so that serving computes the same. A
text is lower-cased (by Unicode, whatever the machine's locale) and cut at all that is no letter,
mark or number (Unicode's L, M, N): `Don't stop!` has the words don, t, stop; `#fire` has fire;
`http://t.co/a1` has http, t, co, a1; `3.14` has 3, 14. A symbol (So, which emoji are) and a Han,
Hiragana or Katakana character are each a word, since nothing separates them; Thai, Lao,
Khmer and Burmese, which have no spaces either, stay one word up to the next space. Bytes that are
no UTF-8 are dropped. No text is normalised (NFC): é as one character and as e with an accent are
two words.

A term is one word, or several in a row, joined by `_`, which no word holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shared_core.feature_layout import ASSET
from transform.block import tf

LABEL_VOCABULARY = "label_classes"
_ESCAPES = ((r"\\", r"\\\\"), ("\n", r"\\n"), ("\r", r"\\r"))  # RE2: pattern, rewrite
_LONGEST_FILE = 100  # characters; many file systems take 255 bytes


def listed_ids(texts: tf.Tensor, values: Sequence[str], *, oov_buckets: int) -> tf.Tensor:
    """Return ids of texts `[n]` by their place in a list, then by hash; int64 `[n]`.

    By binary search among the values' hashes, which takes no table: a graph with one cannot be
    traced on its own, and comparing with each value would take values x rows.
    """
    known = tf.constant(values, tf.string)
    of_known, of_text = (
        tf.strings.to_hash_bucket_fast(x, np.iinfo(np.int64).max) for x in (known, texts)
    )
    order = tf.argsort(of_known, stable=True)
    place = tf.searchsorted(tf.gather(of_known, order), of_text, side="left")
    found = tf.gather(order, tf.minimum(place, len(values) - 1))
    unseen = len(values) + of_text % oov_buckets
    return tf.where(tf.equal(tf.gather(known, found), texts), tf.cast(found, tf.int64), unseen)


def lookup(
    text: tf.Tensor,
    file: str,
    *,
    top_k: int | None,
    oov_buckets: int,
    min_count: int | None = None,
    texts: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ids of texts by the vocabulary of `text`, `[n]`, over the analysis data.

    `top_k` values are kept (None: all) that at least `min_count` rows hold, in `file`. `texts`, by
    default `text`, are looked up: int64 ids, -1 for an unseen value where `oov_buckets` is 0; and
    the number of ids. A column without any value has one entry, which no data holds (TFT's
    placeholder).
    """
    import tensorflow_transform as tft

    # TFT drops empty texts, which stand for missing here.
    lines = _one_line(text)
    vocabulary = tft.vocabulary(
        lines, top_k=top_k, frequency_threshold=min_count, vocab_filename=file
    )
    ids = tft.apply_vocabulary(
        lines if texts is None else _one_line(texts),
        vocabulary,
        default_value=-1,
        num_oov_buckets=oov_buckets,
    )
    return ids, tft.get_num_buckets_for_transformed_feature(ids)


def vocabulary_names(names: Sequence[str]) -> dict[str, str]:
    """Return a unique file name for each column's vocabulary: the column's name if it is valid.

    TFT makes a name scope of it, which takes ASCII alone.
    """
    files: dict[str, str] = {}
    taken = {ASSET, LABEL_VOCABULARY}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST_FILE]
        file, number = base, 1
        while file.lower() in taken:
            number += 1
            file = f"{base}_{number}"
        files[name] = file
        taken.add(file.lower())
    return files


def _one_line(texts: tf.Tensor) -> tf.Tensor:
    r"""Return strings of any shape as they are in vocabulary files, which have one value per line.

    `tft.vocabulary` drops a text that holds a newline or a carriage return, so it would be out of
    vocabulary however frequent. Here such a text is written with `\n` and `\r`, and a backslash as
    `\\` so that no two texts become one. The same operations run before the lookup, at serving too.
    """
    for pattern, rewrite in _ESCAPES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts


# U+FFFD stands for invalid bytes; U+FE0E and U+FE0F choose how an emoji is drawn.
_NO_WORD = r"[^\pL\pM\pN\p{So}]+|[\x{FFFD}\x{FE0E}\x{FE0F}]"
_SINGLE_CHARACTER_WORD = r"([\p{So}\p{Han}\p{Hiragana}\p{Katakana}]\pM*)"


class _TermCounts(NamedTuple):
    """Each different term of each row, row by row, in the order of the text.

    Attributes:
        terms: string `[terms]`.
        row: int64 `[terms]`, ascending.
        count: int64 `[terms]`: how often the row holds the term.
    """

    terms: tf.Tensor
    row: tf.Tensor
    count: tf.Tensor


def lower_case(texts: tf.Tensor) -> tf.Tensor:
    """Return texts in lower case, with U+FFFD for bytes that are no UTF-8."""
    # ICU lower-cases I and U+0130 by the locale's language. ASCII is done without it, and U+0130
    # becomes what ICU makes of it everywhere but in Turkish and Azerbaijani.
    lower = tf.strings.regex_replace(tf.strings.lower(texts), "\u0130", "i\u0307")
    # tf.strings.lower takes a NUL for the end of the text.
    lower = tf.strings.regex_replace(lower, r"\x00", " ")
    return tf.strings.lower(lower, encoding="utf-8")


def words(texts: tf.Tensor, *, lowercase: bool = True) -> tf.RaggedTensor:
    """Return words of texts `[batch]`; string `[batch, (words)]`."""
    texts = (
        lower_case(texts) if lowercase else tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    )
    spaced = tf.strings.regex_replace(texts, _NO_WORD, " ")
    return tf.strings.split(tf.strings.regex_replace(spaced, _SINGLE_CHARACTER_WORD, r" \1 "))


def term_counts(texts: tf.Tensor, *, ngrams: int) -> _TermCounts:
    """Count the terms, of at most `ngrams` words, of each row of texts `[batch]`."""
    found = words(texts)
    if ngrams > 1:
        found = tf.strings.ngrams(found, list(range(1, ngrams + 1)), separator="_")
    row = found.value_rowids()
    # One pass over all rows: a term is unique together with its row.
    keys = tf.strings.join([tf.strings.as_string(row), found.values], separator=" ")
    unique, place, count = tf.unique_with_counts(keys, out_idx=tf.int64)
    n = tf.size(unique, out_type=tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys, out_type=tf.int64)), place, n)
    return _TermCounts(tf.gather(found.values, first), tf.gather(row, first), count)
