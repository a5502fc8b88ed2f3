"""Encoders: values -> ids 0..size-1, each with ids of its own for what it does not know.

    vocabulary   0..V-1 by falling frequency or as listed, then oov_buckets by hash, then missing
    integer      0..size-1 the value itself, then out of range, then missing
    bucketize    0..buckets-1 by quantile or given bounds, then missing
    hash         0..buckets-1, then missing

The size of a block's column counts all of these: it is the number of embedding rows. With
`impute: most_frequent`, a missing value is encoded as the column's most frequent one, and the id of
missing is left for a column without any value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from transform.analyzers.fitted import keep
from transform.analyzers.most_frequent import filled_numbers, filled_texts
from transform.analyzers.quantiles import quantile_boundaries
from transform.columns.block import Block, IdCount
from transform.columns.inputs import DenseColumns
from transform.encode.line_breaks import one_line
from transform.layout import ASSET
from transform.resolve.output_columns import ResolvedGroup
from transform.scale.impute import clip
from transform.spec.encoders import Vocabulary
from transform.spec.group import Group

LABEL_VOCABULARY = "label_classes"
_LONGEST_FILE = 100  # characters; many file systems take 255 bytes


class _Members(NamedTuple):
    """The columns of one kind: name, option and group of each."""

    names: tuple[str, ...]
    options: tuple[Any, ...]
    groups: tuple[Group, ...]

    @property
    def imputed(self) -> list[bool]:
        return [group.impute == "most_frequent" for group in self.groups]


def encode(
    columns: DenseColumns, groups: Sequence[ResolvedGroup], files: Mapping[str, str]
) -> list[Block]:
    """Encodes the columns of all groups, those of one kind together.

    Args:
        columns: those of `groups`.
        groups: the groups with `encode`, of the kinds above.
        files: file name of each vocabulary column.

    Returns:
        One block per kind that occurs.
    """
    by_kind: dict[str, list[tuple[str, Any, Group]]] = {}
    for resolved in groups:
        assert resolved.group.encode is not None
        kind = resolved.group.encode.kind
        option = getattr(resolved.group.encode, kind)
        entries = [(name, option, resolved.group) for name in resolved.columns]
        by_kind.setdefault(kind, []).extend(entries)
    blocks = []
    for kind, entries in by_kind.items():
        members = _Members(*zip(*entries, strict=True))
        if kind == "vocabulary":
            blocks.append(_vocabulary(columns, members, files))
        elif kind == "integer":
            blocks.append(_integer(columns, members))
        elif kind == "bucketize":
            blocks.append(_bucketize(columns, members))
        else:
            blocks.append(_hash(columns, members))
    return blocks


def _integer(columns: DenseColumns, members: _Members) -> Block:
    raw = columns.numbers(members.names)
    x = filled_numbers(raw, members.imputed, members.names)
    sizes = np.asarray([option.size for option in members.options], np.int64)
    # Compared as float64: a value that int64 cannot hold is out of range, not wrapped around.
    with tf.control_dependencies([_refuse_fractions(raw, members.names)]):
        inside = tf.logical_and(x >= 0, x < sizes.astype(np.float64))
    ids = tf.where(inside, tf.cast(tf.where(inside, x, 0.0), tf.int64), sizes)
    ids = tf.where(tf.math.is_nan(x), sizes + 1, ids)
    return _block(members, ids, tf.math.is_nan(raw), [IdCount(int(size) + 2) for size in sizes])


def _refuse_fractions(x: tf.Tensor, names: Sequence[str]) -> tf.Operation:
    """Fails in the graph where a value of x, float64 `[batch, n]`, is no whole number."""
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


def _bucketize(columns: DenseColumns, members: _Members) -> Block:
    raw = clip(columns.numbers(members.names), [group.clip for group in members.groups])
    filled = filled_numbers(raw, members.imputed, members.names)
    counts = np.asarray([option.count for option in members.options], np.int64)
    parts, order = [], []
    for option in dict.fromkeys(members.options):  # one analyzer per number of buckets
        which = np.flatnonzero([other == option for other in members.options])
        x, y = (_columns_at(tensor, which, len(counts)) for tensor in (raw, filled))
        if option.boundaries is None:
            boundaries = quantile_boundaries(x, option.buckets)
        else:
            boundaries = tf.constant([option.boundaries] * len(which), tf.float64)
        boundaries = keep(boundaries, "boundaries", [members.names[i] for i in which])
        parts.append(bucket_ids(y, boundaries))
        order += which.tolist()
    ids = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    ids = _reorder(ids, np.argsort(order))
    ids = tf.where(tf.math.is_nan(filled), counts, ids)
    return _block(members, ids, tf.math.is_nan(raw), [IdCount(int(n) + 1) for n in counts])


def bucket_ids(x: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Bucket of every value: the number of its column's boundaries that are <= it.

    Args:
        x: float64 `[batch, n]`.
        boundaries: float64 `[n, buckets - 1]`, ascending.

    Returns:
        int64 `[batch, n]`; any id where x is NaN.
    """
    finite = tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)
    ids = tf.searchsorted(boundaries, tf.transpose(finite), side="right", out_type=tf.int64)
    return tf.transpose(ids)


def _vocabulary(columns: DenseColumns, members: _Members, files: Mapping[str, str]) -> Block:
    raw = columns.texts(members.names)
    texts = filled_texts(raw, members.imputed, members.names)
    ids, sizes = [], []
    for i, (name, option) in enumerate(zip(members.names, members.options, strict=True)):
        column_ids, size = vocabulary_ids(raw[:, i], texts[:, i], option, files[name])
        ids.append(column_ids)
        sizes.append(size)
    return _block(members, tf.stack(ids, axis=1), tf.equal(raw, ""), sizes)


def vocabulary_ids(
    analyzed: tf.Tensor, texts: tf.Tensor, option: Vocabulary, file: str
) -> tuple[tf.Tensor, IdCount]:
    """Ids of `texts`, `[batch]`, by the vocabulary of `analyzed`, and their number.

    The two differ where missing texts are imputed: with what this same analysis finds.
    """
    if option.values is not None:
        known = len(option.values) + option.oov_buckets
        ids = listed_ids(texts, option.values, oov_buckets=option.oov_buckets)
        return tf.where(tf.equal(texts, ""), tf.constant(known, tf.int64), ids), IdCount(known + 1)
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


def listed_ids(texts: tf.Tensor, values: Sequence[str], *, oov_buckets: int) -> tf.Tensor:
    """Ids of texts by their place in a list, then by hash.

    By binary search among the values' hashes, which takes no table: a graph with one cannot be
    traced on its own, and comparing with each value would take values x rows.

    Args:
        texts: string `[n]`.
        values: different from each other.
        oov_buckets: ids for other texts.

    Returns:
        int64 `[n]`.
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
    """Ids of a text column by its vocabulary over the analysis data.

    Args:
        text: string `[n]`, analyzed.
        file: name of the vocabulary's file.
        top_k: values kept, None: all.
        oov_buckets: ids for unseen values.
        min_count: rows that a kept value is in at least.
        texts: what is looked up; None: `text`.

    Returns:
        int64 like `texts`, -1 for an unseen value where `oov_buckets` is 0; and the number of ids.
        A column without any value has one entry, which no data holds (TFT's placeholder).
    """
    # TFT drops empty texts, which stand for missing here.
    lines = one_line(text)
    vocabulary = tft.vocabulary(
        lines, top_k=top_k, frequency_threshold=min_count, vocab_filename=file
    )
    ids = tft.apply_vocabulary(
        lines if texts is None else one_line(texts),
        vocabulary,
        default_value=-1,
        num_oov_buckets=oov_buckets,
    )
    return ids, tft.get_num_buckets_for_transformed_feature(ids)


def vocabulary_names(names: Sequence[str]) -> dict[str, str]:
    """A vocabulary's file name for each column: its name where it is one, and unique.

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


def _hash(columns: DenseColumns, members: _Members) -> Block:
    raw = columns.texts(members.names)
    texts = filled_texts(raw, members.imputed, members.names)
    buckets = np.asarray([option.buckets for option in members.options], np.int64)
    ids = hash_ids(texts, buckets)
    return _block(members, ids, tf.equal(raw, ""), [IdCount(int(n) + 1) for n in buckets])


def hash_ids(texts: tf.Tensor, buckets: np.ndarray) -> tf.Tensor:
    """One hash for all columns, folded to each column's size; stable across processes."""
    wide = tf.strings.to_hash_bucket_fast(texts, np.iinfo(np.int64).max)
    return tf.where(tf.equal(texts, ""), buckets, wide % buckets)


def _block(
    members: _Members, ids: tf.Tensor, missing: tf.Tensor, sizes: Sequence[IdCount]
) -> Block:
    return Block(members.names, ids, members.names, missing, tuple(sizes))


def _columns_at(x: tf.Tensor, which: np.ndarray, n: int) -> tf.Tensor:
    return x if len(which) == n else tf.gather(x, which, axis=1)


def _reorder(x: tf.Tensor, order: np.ndarray) -> tf.Tensor:
    return x if np.array_equal(order, np.arange(len(order))) else tf.gather(x, order, axis=1)
