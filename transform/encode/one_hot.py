"""encode: one_hot. 0/1 columns of listed values, one 1 among them in each row.

<column>=<value>    1 where the column holds the value
<column>_other      1 where it holds another one
<column>_missing    1 where it holds none

With `impute: most_frequent`, a missing value counts as the column's most frequent one.
"""

from __future__ import annotations

import numpy as np

from transform.block import Block
from transform.columns.types import INDICATOR_SUFFIX, OTHER_SUFFIX
from transform.encode.encoder import Encoder, Inputs, Known, Members, explain_nothing
from transform.spec.encoders import OneHot


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    import tensorflow as tf

    from transform.analyzers.most_frequent import fill_texts

    names = members.names
    pairs = [(i, value) for i, option in enumerate(members.options) for value in option.values]
    owner = np.asarray([i for i, _ in pairs])
    raw = inputs.dense.texts(names)
    missing = tf.equal(raw, "")
    texts = fill_texts(raw, members.imputed, names)
    wanted = tf.constant([value for _, value in pairs])
    hit = tf.cast(tf.equal(tf.gather(texts, owner, axis=1), wanted), tf.float32)
    owned = owner[:, np.newaxis] == np.arange(len(names))  # [values, columns]
    known = tf.matmul(hit, owned.astype(np.float32))  # 0 or 1: the values are distinct
    absent = tf.cast(tf.equal(texts, ""), tf.float32)
    block = Block(
        names=(
            *(f"{names[i]}={value}" for i, value in pairs),
            *(name + OTHER_SUFFIX for name in names),
            *(name + INDICATOR_SUFFIX for name in names),
        ),
        values=tf.concat([hit, 1.0 - known - absent, absent], axis=1),
        sources=(*(names[i] for i, _ in pairs), *names, *names),
        missing=tf.concat([tf.gather(missing, owner, axis=1), missing, missing], axis=1),
        sizes=(None,) * (len(pairs) + 2 * len(names)),
    )
    return [block]


def _endings(option: OneHot) -> list[str]:
    return [*(f"={value}" for value in option.values), OTHER_SUFFIX]


ENCODER = Encoder(
    name="one_hot",
    takes={"string": "", "int": ""},
    reads="texts",
    apply=_apply,
    endings=_endings,
    has_indicator=True,
    known=lambda option: Known(values=option.values),
    explain=explain_nothing,
    is_aspect=True,
)
