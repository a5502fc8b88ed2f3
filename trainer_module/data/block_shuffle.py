"""Shuffle rows in blocks; tf.data's own shuffle moves them one by one."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.common.tensors import Tensors


def shuffle_blocks(blocks: tf.data.Dataset, *, held_rows: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Return the rows of blocks in random order, again in blocks, some of which may be empty.

    `held_rows` rows are held back. Each incoming block is mixed with them, and as many rows as it
    has, drawn at random from both, are returned. At the end the held rows follow, in random order.
    If all rows together are at most `held_rows` plus one block, all orders are equally likely.

    Args:
        blocks: Structures of tensors `[rows, ...]` with at least one row each; sizes may differ.
        held_rows: At least 0. Memory holds up to three times as many rows, and three blocks.
        seed: int64 scalar: the same seed gives the same order.
    """
    spec = blocks.element_spec
    specs = tf.nest.flatten(spec)
    nothing = [tf.zeros([0, *each.shape[1:]], each.dtype) for each in specs]
    empty = tf.nest.pack_sequence_as(spec, nothing)

    # tf.data prepares a dataset's function for each iterator, operation by operation: this
    # one has as few operations as possible.
    def mix(state: Tensors, block: Tensors) -> Tensors:
        held, number = state
        new = tf.nest.flatten(block)
        both = [tf.concat(pair, 0) for pair in zip(tf.nest.flatten(held), new, strict=True)]
        rows, at_end = tf.shape(both[0])[0], tf.shape(new[0])[0] == 0
        random = tf.raw_ops.StatelessRandomUniformFullInt(
            shape=[rows], seed=[seed, number], dtype=tf.int64
        )
        order = tf.math.top_k(random, rows).indices
        leave = tf.where(at_end, rows, tf.maximum(rows - held_rows, 0))
        go, stay = tf.split(order, [leave, rows - leave])
        return (gathered(both, stay), number + 1), gathered(both, go)

    def gathered(tensors: list[tf.Tensor], order: tf.Tensor) -> Tensors:
        found = [tf.gather(tensor, order) for tensor in tensors]
        for tensor, each in zip(found, specs, strict=True):
            tensor.set_shape([None, *each.shape[1:]])
        return tf.nest.pack_sequence_as(spec, found)

    ended = blocks.concatenate(tf.data.Dataset.from_tensors(empty))
    return ended.scan((empty, tf.constant(0, tf.int64)), mix)
