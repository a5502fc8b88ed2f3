"""Crosses: one id per combination of values.

The combination is a text: the columns' texts, joined by the unit separator (U+001F), a float's
bucket in its place. A U+001F within a text is written as U+001E and 1, and a U+001E as itself and
0, so that no two combinations become one text. It is encoded as any text, by hash or vocabulary;
missing in one column is missing in the cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from transform.block import Block
from transform.encode.encoder import Inputs
from transform.encode.table import ENCODERS
from transform.spec.features import Cross

_SEPARATOR = "\x1f"
_ESCAPES = (("\x1e", "\x1e0"), (_SEPARATOR, "\x1e1"))


class _Bucketized(NamedTuple):
    """A float column's buckets."""

    ids: tf.Tensor  # int64 [batch]
    missing: tf.Tensor  # bool [batch]


def float_buckets(
    crosses: Sequence[Cross], types: Mapping[str, object], blocks: Sequence[Block]
) -> dict[str, _Bucketized]:
    """Return the buckets of the float columns of the crosses, out of the encoded blocks."""
    floats = {name for each in crosses for name in each.columns if types[name] == "float"}
    return {
        name: _Bucketized(block.values[:, i], block.missing[:, i])
        for block in blocks
        for i, name in enumerate(block.names)
        if name in floats
    }


def cross_texts(crosses: Sequence[Cross], types: Mapping[str, object]) -> list[str]:
    """Return the columns that take part as texts; a float takes part with its bucket."""
    names = [n for cross in crosses for n in cross.columns if types[n] != "float"]
    return list(dict.fromkeys(names))


def cross(
    inputs: Inputs, crosses: Sequence[Cross], buckets: Mapping[str, _Bucketized]
) -> list[Block]:
    """Encode all crosses.

    Args:
        inputs: texts of all columns but the floats, and the crosses' vocabulary files.
        crosses: the crosses.
        buckets: of each float column.

    Returns:
        One block per cross, int64 `[batch, 1]`.
    """
    names = list(dict.fromkeys(n for each in crosses for n in each.columns if n not in buckets))
    texts = inputs.dense.texts(names) if names else tf.zeros([0, 0], tf.string)
    for pattern, rewrite in _ESCAPES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    blocks = []
    for each in crosses:
        parts, missing = [], []
        for name in each.columns:
            if name in buckets:
                parts.append(tf.strings.as_string(buckets[name].ids))
                missing.append(buckets[name].missing)
            else:
                text = texts[:, names.index(name)]
                parts.append(text)
                missing.append(tf.equal(text, ""))
        absent = tf.reduce_any(tf.stack(missing, axis=1), axis=1)
        text = tf.where(absent, "", tf.strings.join(parts, _SEPARATOR))
        of_texts = ENCODERS[each.encode.kind].of_texts
        assert of_texts is not None
        ids, size = of_texts(text, each.encode.option, inputs.files.get(each.name, ""))
        block = Block(
            names=(each.name,),
            values=ids[:, tf.newaxis],
            sources=(each.source,),
            missing=absent[:, tf.newaxis],
            sizes=(size,),
        )
        blocks.append(block)
    return blocks
