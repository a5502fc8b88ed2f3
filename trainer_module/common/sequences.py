"""Sequences of token ids in dense tensors `[rows, length]`, where 0 is padding behind each row.

Rows are padded to a few lengths only, so that a step has few shapes: the longest one, and its
halves down to 16. A level is the number of halvings.
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


def row_lengths(ids: tf.Tensor) -> tf.Tensor:
    """Return the number of ids in front of the padding, int32 `[rows]`."""
    places = tf.range(1, tf.shape(ids)[1] + 1)
    return tf.reduce_max(tf.where(tf.not_equal(ids, 0), places, 0), axis=1)


def levels(features: _Features, names: Collection[str]) -> int:
    """Return the number of levels: that of the feature with the most lengths."""
    return max(len(lengths_by_level(features[name].shape[1])) for name in names)


def level_of(features: _Features, names: Collection[str]) -> tf.Tensor:
    """Return the highest level whose lengths hold every row, a scalar int32."""
    fitting = []
    for name in names:
        lengths = lengths_by_level(features[name].shape[1])
        lengths += lengths[-1:] * (levels(features, names) - len(lengths))
        longest = tf.reduce_max(tf.pad(row_lengths(features[name]), [[0, 1]]))
        fitting.append(tf.reduce_sum(tf.cast(tf.constant(lengths) >= longest, tf.int32)) - 1)
    return tf.reduce_min(tf.stack(fitting))


def trimmed(
    features: _Features, names: Collection[str], level: tf.Tensor | int
) -> dict[str, tf.Tensor]:
    """Return features whose sequences have the length of a level; a number gives a static one."""
    found = dict(features)
    for name in names:
        lengths = lengths_by_level(features[name].shape[1])
        if isinstance(level, int):
            found[name] = features[name][:, : lengths[min(level, len(lengths) - 1)]]
        else:
            length = tf.gather(lengths, tf.minimum(level, len(lengths) - 1))
            found[name] = tf.ensure_shape(features[name][:, :length], [None, None])
    return found
