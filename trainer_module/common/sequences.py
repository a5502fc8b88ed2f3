"""Sequences of token ids in dense tensors `[rows, length]`, where 0 is padding behind each row.

Rows have one of a few lengths, so that a step has few shapes: the longest one, and its halves down
to 16. A level is the number of halvings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import tensorflow as tf

_SHORTEST = 16

# Features by name, int64 `[rows, length]` or any other.
_Features: TypeAlias = Mapping[str, tf.Tensor]


def lengths_by_level(longest: int) -> list[int]:
    """Return the lengths of a feature of at most so many ids, the longest first."""
    lengths = [longest]
    while lengths[-1] >= 2 * _SHORTEST:
        lengths.append(-(-lengths[-1] // 2))
    return lengths


def row_lengths(features: _Features, names: Collection[str]) -> tf.Tensor:
    """Return the number of ids in front of the padding, int32 `[names, rows]`."""
    found = []
    for name in names:
        places = tf.range(1, tf.shape(features[name])[1] + 1)
        found.append(tf.reduce_max(tf.where(tf.not_equal(features[name], 0), places, 0), axis=1))
    return tf.stack(found)


def levels(features: _Features, names: Collection[str]) -> int:
    """Return the number of levels: that of the feature with the most lengths."""
    return max(len(lengths_by_level(features[name].shape[1])) for name in names)


def level_of(features: _Features, names: Collection[str]) -> tf.Tensor:
    """Return the highest level whose lengths hold every row, a scalar int32."""
    count = levels(features, names)
    lengths = [lengths_by_level(features[name].shape[1]) for name in names]
    table = tf.constant([each + each[-1:] * (count - len(each)) for each in lengths])
    # One more row without ids, because a share may have no row.
    longest = tf.reduce_max(tf.pad(row_lengths(features, names), [[0, 0], [0, 1]]), axis=1)
    fits = tf.reduce_all(table >= longest[:, tf.newaxis], axis=0)
    return tf.reduce_sum(tf.cast(fits, tf.int32)) - 1


def cut(tensor: tf.Tensor, level: tf.Tensor | int) -> tf.Tensor:
    """Return a tensor `[rows, longest, ...]` with the length of a level; an int: a static one."""
    lengths = lengths_by_level(tensor.shape[1])
    if isinstance(level, int):
        return tensor[:, : lengths[min(level, len(lengths) - 1)]]
    length = tf.gather(lengths, tf.minimum(level, len(lengths) - 1))
    return tf.ensure_shape(tensor[:, :length], [tensor.shape[0], None, *tensor.shape[2:]])


def trimmed(
    features: _Features, names: Collection[str], level: tf.Tensor | int
) -> dict[str, tf.Tensor]:
    """Return features whose sequences have the length of a level."""
    return {**features, **{name: cut(features[name], level) for name in names}}
