"""encode: vocabulary. Ids of known values, then `oov_buckets` by hash, then one for missing.

Known values are in order of falling frequency (learned), or as the spec lists them. With
`impute: most_frequent`, a missing value is encoded as the column's most frequent one, and the id of
missing is left for a column without any value.

With `share: true`, the columns of a group have one vocabulary, by the frequency in all of them
together, in the file of the first one.

encode: integer. Ids 0..size-1 are the value itself, then one for out of range, then missing.

encode: bucketize. Ids 0..buckets-1 by quantile or given bounds, then one for missing.

encode: hash. Ids 0..buckets-1 by a stable hash of the value's text, then one for missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared_core.feature_layout import Column
from transform.analyzers.fitted import FittedColumn, keep
from transform.block import Block, Explanation, IdCount, joined, take_columns, tf
from transform.encode.encoder import Encoder, Inputs, Members, number_of_ids, option_of
from transform.encode.lookup import listed_ids, lookup
from transform.spec.encoders import Bucketize, Hash, Vocabulary


def _vocabulary(inputs: Inputs, members: Members) -> list[Block]:
    from transform.analyzers.counts import fill_texts

    names = members.names
    raw = inputs.dense.texts(names)
    texts = fill_texts(raw, members.imputed, names)
    ids, sizes = [], []
    for each in members.resolved:
        width = len(each.columns) if each.group.share else 1
        for first in range(0, len(each.columns), width):
            start, file = len(sizes), inputs.files[each.columns[first]]
            analyzed, wanted = (tf.reshape(x[:, start : start + width], [-1]) for x in (raw, texts))
            flat, size = _vocabulary_ids(analyzed, wanted, option_of(each), file)
            ids.append(tf.reshape(flat, [-1, width]))
            sizes += [size] * width
    return [Block(names, tf.concat(ids, axis=1), names, tf.equal(raw, ""), tuple(sizes))]


def _vocabulary_ids(
    analyzed: tf.Tensor, texts: tf.Tensor, option: Vocabulary, file: str
) -> tuple[tf.Tensor, IdCount]:
    """Return ids of `texts`, `[batch]`, by the vocabulary of `analyzed`, and their number.

    The two differ where missing texts are imputed: with what this same analysis finds.
    """
    if option.values is not None:
        known = len(option.values) + option.oov_buckets
        ids = listed_ids(texts, option.values, oov_buckets=option.oov_buckets)
        return tf.where(tf.equal(texts, ""), tf.constant(known, tf.int64), ids), IdCount(
            known + 1, extra_ids=option.oov_buckets + 1
        )
    ids, known = lookup(
        analyzed,
        file,
        top_k=option.top_k,
        min_count=option.min_count,
        oov_buckets=option.oov_buckets,
        texts=texts,
    )
    ids = tf.where(tf.equal(texts, ""), known, ids)
    return ids, IdCount(known + 1, file, option.oov_buckets + 1)


VOCABULARY = Encoder(
    name="vocabulary",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_vocabulary,
    names_file=True,
    of_texts=lambda texts, option, file: _vocabulary_ids(texts, texts, option, file),
)


def _integer(inputs: Inputs, members: Members) -> list[Block]:
    from transform.analyzers.counts import fill_numbers

    raw = inputs.dense.numbers(members.names)
    x = fill_numbers(raw, members.imputed, members.names)
    sizes = np.asarray([option.size for option in members.options], np.int64)
    # Compared as float64: a value that int64 cannot hold is out of range, not wrapped around.
    with tf.control_dependencies([_refuse_fractions(raw, members.names)]):
        inside = tf.logical_and(x >= 0, x < sizes.astype(np.float64))
    ids = tf.where(inside, tf.cast(tf.where(inside, x, 0.0), tf.int64), sizes)
    ids = tf.where(tf.math.is_nan(x), sizes + 1, ids)
    counts = tuple(IdCount(int(size) + 2) for size in sizes)
    return [Block(members.names, ids, members.names, tf.math.is_nan(raw), counts)]


def _refuse_fractions(x: tf.Tensor, names: Sequence[str]) -> tf.Operation:
    """Fail in the graph where a value of x, float64 `[batch, n]`, is no whole number."""
    # NaN, which is missing, is not equal to itself: neither larger nor smaller than its floor.
    where = tf.where(x > tf.floor(x))
    first = tf.gather_nd(x, where[:1])
    column = tf.gather(tf.constant(list(names)), where[:1, 1])
    # The bare operation, as in inputs.py.
    return tf.raw_ops.Assert(
        condition=tf.equal(tf.size(where), 0),
        data=[
            tf.strings.join(
                [
                    "a value that is no whole number in column ",
                    tf.strings.reduce_join(column),
                    ": ",
                    tf.strings.reduce_join(tf.strings.as_string(first, shortest=True)),
                ]
            ),
            "encode: integer takes the value as the id; use a scale, or encode: bucketize",
        ],
        name="whole_numbers",
    )


INTEGER = Encoder(
    name="integer",
    # Whole floats are what pandas writes for ints beside a missing value.
    takes={"float": "where every value is whole", "int": ""},
    reads="numbers",
    apply=_integer,
)

BOUNDARIES = "boundaries"  # what each column's boundaries are kept as


def _bucketize(inputs: Inputs, members: Members) -> list[Block]:
    from transform.analyzers.counts import fill_numbers
    from transform.analyzers.quantiles import quantile_boundaries
    from transform.columns.numbers import clip

    names, options = members.names, members.options
    bounds = [each.group.clip for each in members.resolved for _ in each.columns]
    raw = clip(inputs.dense.numbers(names), bounds)
    filled = fill_numbers(raw, members.imputed, names)
    counts = np.asarray([option.count for option in options], np.int64)
    parts, order = [], []
    for option in dict.fromkeys(options):  # one analyzer per number of buckets
        which = [i for i, other in enumerate(options) if other == option]
        if option.boundaries is None:
            boundaries = quantile_boundaries(take_columns(raw, which), option.buckets)
        else:
            boundaries = tf.constant([option.boundaries] * len(which), tf.float64)
        boundaries = keep(boundaries, BOUNDARIES, [names[i] for i in which])
        parts.append(_bucket_ids(take_columns(filled, which), boundaries))
        order += which
    ids = take_columns(joined(parts), np.argsort(order).tolist())
    ids = tf.where(tf.math.is_nan(filled), counts, ids)
    sizes = tuple(IdCount(int(n) + 1) for n in counts)
    return [Block(names, ids, names, tf.math.is_nan(raw), sizes)]


def _bucket_ids(x: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Return the bucket of every value: the number of its column's boundaries that are <= it."""
    finite = tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)
    ids = tf.searchsorted(boundaries, tf.transpose(finite), side="right", out_type=tf.int64)
    return tf.transpose(ids)


def _explain_buckets(
    option: Bucketize, columns: Sequence[Column], fitted: FittedColumn
) -> Explanation:
    boundaries = fitted.values.get(BOUNDARIES)
    learned = [] if boundaries is None else boundaries.tolist()
    return {"boundaries": learned, **number_of_ids(option, columns, fitted)}


BUCKETIZE = Encoder(
    name="bucketize",
    takes={"float": "", "int": ""},
    reads="numbers",
    apply=_bucketize,
    explain=_explain_buckets,
)


def _hash(inputs: Inputs, members: Members) -> list[Block]:
    from transform.analyzers.counts import fill_texts

    raw = inputs.dense.texts(members.names)
    texts = fill_texts(raw, members.imputed, members.names)
    buckets = np.asarray([option.buckets for option in members.options], np.int64)
    sizes = tuple(IdCount(int(n) + 1) for n in buckets)
    ids = _hash_ids(texts, buckets)
    return [Block(members.names, ids, members.names, tf.equal(raw, ""), sizes)]


def _hash_ids(texts: tf.Tensor, buckets: np.ndarray) -> tf.Tensor:
    """Return one hash for all columns, folded to each column's size; stable across processes."""
    wide = tf.strings.to_hash_bucket_fast(texts, np.iinfo(np.int64).max)
    return tf.where(tf.equal(texts, ""), buckets, wide % buckets)


def _hash_of_texts(texts: tf.Tensor, option: Hash, file: str) -> tuple[tf.Tensor, IdCount]:
    return _hash_ids(texts, np.asarray(option.buckets, np.int64)), IdCount(option.buckets + 1)


HASH = Encoder(
    name="hash",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_hash,
    of_texts=_hash_of_texts,
)
