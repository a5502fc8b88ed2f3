"""encode: hash. Ids 0..buckets-1 by a stable hash of the value's text, then one for missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transform.block import Block, IdCount
from transform.encode.encoder import Encoder, Inputs, Members
from transform.spec.encoders import Hash

if TYPE_CHECKING:
    import tensorflow as tf


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    import tensorflow as tf

    from transform.analyzers.most_frequent import fill_texts

    raw = inputs.dense.texts(members.names)
    texts = fill_texts(raw, members.imputed, members.names)
    buckets = np.asarray([option.buckets for option in members.options], np.int64)
    sizes = tuple(IdCount(int(n) + 1) for n in buckets)
    ids = hash_ids(texts, buckets)
    return [Block(members.names, ids, members.names, tf.equal(raw, ""), sizes)]


def hash_ids(texts: tf.Tensor, buckets: np.ndarray) -> tf.Tensor:
    """Return one hash for all columns, folded to each column's size; stable across processes.

    Args:
        texts: string `[..., n]`.
        buckets: int64 `[n]`, or a scalar.

    Returns:
        int64 like `texts`; `buckets` where a text is empty.
    """
    import tensorflow as tf

    wide = tf.strings.to_hash_bucket_fast(texts, np.iinfo(np.int64).max)
    return tf.where(tf.equal(texts, ""), buckets, wide % buckets)


def _of_texts(texts: tf.Tensor, option: Hash, file: str) -> tuple[tf.Tensor, IdCount]:
    return hash_ids(texts, np.asarray(option.buckets, np.int64)), IdCount(option.buckets + 1)


ENCODER = Encoder(
    name="hash",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_apply,
    of_texts=_of_texts,
)
