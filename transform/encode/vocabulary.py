"""encode: vocabulary. Ids of known values, then `oov_buckets` by hash, then one for missing.

Known values are in order of falling frequency (learned), or as the spec lists them. With
`impute: most_frequent`, a missing value is encoded as the column's most frequent one, and the id of
missing is left for a column without any value.

With `share: true`, the columns of a group have one vocabulary, by the frequency in all of them
together, in the file of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.block import Block, IdCount
from transform.encode.encoder import Encoder, Inputs, Known, Members, option_of
from transform.spec.encoders import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    import tensorflow as tf

    from transform.analyzers.most_frequent import fill_texts

    names = members.names
    raw = inputs.dense.texts(names)
    texts = fill_texts(raw, members.imputed, names)
    ids, sizes = [], []
    for each in members.resolved:
        width = len(each.columns) if each.group.share else 1
        for first in range(0, len(each.columns), width):
            start, file = len(sizes), inputs.files[each.columns[first]]
            analyzed, wanted = (tf.reshape(x[:, start : start + width], [-1]) for x in (raw, texts))
            flat, size = _ids(analyzed, wanted, option_of(each), file)
            ids.append(tf.reshape(flat, [-1, width]))
            sizes += [size] * width
    return [Block(names, tf.concat(ids, axis=1), names, tf.equal(raw, ""), tuple(sizes))]


def _ids(
    analyzed: tf.Tensor, texts: tf.Tensor, option: Vocabulary, file: str
) -> tuple[tf.Tensor, IdCount]:
    """Return ids of `texts`, `[batch]`, by the vocabulary of `analyzed`, and their number.

    The two differ where missing texts are imputed: with what this same analysis finds.
    """
    import tensorflow as tf

    from transform.encode.lookup import listed_ids, lookup

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


def _of_texts(texts: tf.Tensor, option: Vocabulary, file: str) -> tuple[tf.Tensor, IdCount]:
    return _ids(texts, texts, option, file)


ENCODER = Encoder(
    name="vocabulary",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_apply,
    names_file=True,
    of_texts=_of_texts,
    known=lambda option: Known(top_k=option.top_k),
)
