"""Encoders: values -> ids 0..size-1, each with ids of its own for what it does not know.

    vocabulary   0..V-1 by falling frequency, then oov_buckets by hash, then missing
    integer      0..size-1 the value itself, then out of range, then missing
    bucketize    0..buckets-1 by quantile, then missing
    hash         0..buckets-1, then missing

The size that `Encoded` states counts all of these: it is the number of embedding rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from transform.impute import clip
from transform.inputs import DenseColumns
from transform.layout import ASSET
from transform.quantiles import quantile_boundaries
from transform.select import ResolvedGroup
from transform.spec import Bucketize, Clip, Hash, Integer, Vocabulary

LABEL_VOCABULARY = "label_classes"


class IdCount(NamedTuple):
    """The number of ids of a column; that of a vocabulary is known after the analysis."""

    total: Any  # int, or int64 scalar tensor
    vocabulary: str | None = None  # file with one known value per line
    extra_ids: int = 0  # ids beside those in the file


class Encoded(NamedTuple):
    """Some id columns side by side."""

    names: tuple[str, ...]
    ids: tf.Tensor  # int64 [batch, n]
    missing: tf.Tensor  # bool [batch, n]
    sizes: tuple[IdCount, ...]


def encode(columns: DenseColumns, groups: Sequence[ResolvedGroup]) -> list[Encoded]:
    """Encodes the columns of all groups, those of one kind together.

    Args:
        columns: those of `groups`.
        groups: the groups with `encode`.

    Returns:
        One entry per kind that occurs.
    """
    by_kind: dict[str, list[tuple[str, Any, Clip | None]]] = {}
    for resolved in groups:
        assert resolved.group.encode is not None
        kind = resolved.group.encode.kind
        option = getattr(resolved.group.encode, kind)
        members = [(name, option, resolved.group.clip) for name in resolved.columns]
        by_kind.setdefault(kind, []).extend(members)
    encoders = {
        "vocabulary": _vocabulary,
        "integer": _integer,
        "bucketize": _bucketize,
        "hash": _hash,
    }
    encoded = []
    for kind, members in by_kind.items():
        names, options, bounds = zip(*members, strict=True)
        encoded.append(encoders[kind](columns, names, options, bounds))
    return encoded


def _integer(
    columns: DenseColumns, names: tuple[str, ...], options: Sequence[Integer], bounds: Any
) -> Encoded:
    x = columns.numbers(names)
    sizes = np.asarray([option.size for option in options], np.int64)
    missing = tf.math.is_nan(x)
    # Compared as float64: a value that int64 cannot hold is out of range, not wrapped around.
    inside = tf.logical_and(x >= 0, x < sizes.astype(np.float64))
    ids = tf.where(inside, tf.cast(tf.where(inside, x, 0.0), tf.int64), sizes)
    ids = tf.where(missing, sizes + 1, ids)
    return Encoded(names, ids, missing, tuple(IdCount(int(size) + 2) for size in sizes))


def _bucketize(
    columns: DenseColumns,
    names: tuple[str, ...],
    options: Sequence[Bucketize],
    bounds: Sequence[Clip | None],
) -> Encoded:
    x = clip(columns.numbers(names), bounds)
    missing = tf.math.is_nan(x)
    counts = np.asarray([option.buckets for option in options], np.int64)
    parts, order = [], []
    for buckets in dict.fromkeys(counts.tolist()):  # one analyzer per number of buckets
        members = np.flatnonzero(counts == buckets)
        part = x if len(members) == len(names) else tf.gather(x, members, axis=1)
        parts.append(bucket_ids(part, quantile_boundaries(part, buckets)))
        order += members.tolist()
    ids = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    ids = _reorder(ids, np.argsort(order))
    ids = tf.where(missing, counts, ids)
    return Encoded(names, ids, missing, tuple(IdCount(int(count) + 1) for count in counts))


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


def _vocabulary(
    columns: DenseColumns, names: tuple[str, ...], options: Sequence[Vocabulary], bounds: Any
) -> Encoded:
    texts = columns.texts(names)
    missing = tf.equal(texts, "")
    files = vocabulary_names(names)
    ids, sizes = [], []
    for name, option, text in zip(names, options, tf.unstack(texts, axis=1), strict=True):
        column_ids, known = lookup(
            text, files[name], top_k=option.top_k, oov_buckets=option.oov_buckets
        )
        ids.append(column_ids)
        sizes.append(IdCount(known + 1, files[name], option.oov_buckets + 1))
    last = tf.stack([size.total for size in sizes]) - 1
    stacked = tf.where(missing, last, tf.stack(ids, axis=1))
    return Encoded(names, stacked, missing, tuple(sizes))


def lookup(
    text: tf.Tensor, file: str, *, top_k: int | None, oov_buckets: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids of a text column by its vocabulary over the analysis data.

    Returns:
        int64 `[batch]`, -1 for an unseen value where `oov_buckets` is 0; and the number of ids.
        A column without any value has one entry, which no data holds (TFT's placeholder).
    """
    # TFT drops empty texts, which stand for missing here, and texts with a line break.
    vocabulary = tft.vocabulary(text, top_k=top_k, vocab_filename=file)
    ids = tft.apply_vocabulary(text, vocabulary, default_value=-1, num_oov_buckets=oov_buckets)
    return ids, tft.get_num_buckets_for_transformed_feature(ids)


def vocabulary_names(names: Sequence[str]) -> dict[str, str]:
    """A vocabulary's file name for each column: its name where it is one, and unique."""
    files: dict[str, str] = {}
    taken = {ASSET, LABEL_VOCABULARY}
    for name in names:
        base = re.sub(r"\W", "_", name)
        file, number = base, 1
        while file in taken:
            number += 1
            file = f"{base}_{number}"
        files[name] = file
        taken.add(file)
    return files


def _hash(
    columns: DenseColumns, names: tuple[str, ...], options: Sequence[Hash], bounds: Any
) -> Encoded:
    texts = columns.texts(names)
    missing = tf.equal(texts, "")
    buckets = np.asarray([option.buckets for option in options], np.int64)
    # One hash for all columns, folded to each column's size; stable across processes.
    wide = tf.strings.to_hash_bucket_fast(texts, np.iinfo(np.int64).max)
    ids = tf.where(missing, buckets, wide % buckets)
    return Encoded(names, ids, missing, tuple(IdCount(int(count) + 1) for count in buckets))


def _reorder(x: tf.Tensor, order: np.ndarray) -> tf.Tensor:
    return x if np.array_equal(order, np.arange(len(order))) else tf.gather(x, order, axis=1)
