"""encode: integer. Ids 0..size-1 are the value itself, then one for out of range, then missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from transform.block import Block, IdCount
from transform.encode.encoder import Encoder, Inputs, Known, Members

if TYPE_CHECKING:
    import tensorflow as tf


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    import tensorflow as tf

    from transform.analyzers.most_frequent import fill_numbers

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
    import tensorflow as tf

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


ENCODER = Encoder(
    name="integer",
    # Whole floats are what pandas writes for ints beside a missing value.
    takes={"float": "where every value is whole", "int": ""},
    reads="numbers",
    apply=_apply,
    known=lambda option: Known(size=option.size),
)
