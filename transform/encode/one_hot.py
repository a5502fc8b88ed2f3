"""One-hot columns of listed values: each row has exactly one 1 among a column's outputs.

<column>=<value>    1 where the column holds the value
<column>_other      1 where it holds another one
<column>_missing    1 where it holds none

With `impute: most_frequent`, a missing value counts as the column's most frequent one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from transform.analyzers.most_frequent import filled_texts
from transform.columns.block import Block
from transform.columns.inputs import DenseColumns
from transform.resolve.output_columns import INDICATOR_SUFFIX, OTHER_SUFFIX, ResolvedGroup


def one_hot(columns: DenseColumns, groups: Sequence[ResolvedGroup]) -> Block:
    """Encodes the columns of all groups at once.

    Args:
        columns: those of `groups`.
        groups: at least one group, each with `encode: one_hot`.

    Returns:
        float32 0 and 1, `[batch, values + 2 columns]`.
    """
    names: list[str] = []
    imputed: list[bool] = []
    pairs: list[tuple[int, str]] = []  # index into names, value
    for resolved in groups:
        assert resolved.group.encode is not None
        assert resolved.group.encode.one_hot is not None
        for name in resolved.columns:
            pairs += [(len(names), value) for value in resolved.group.encode.one_hot.values]
            names.append(name)
            imputed.append(resolved.group.impute == "most_frequent")
    owner = np.asarray([i for i, _ in pairs])
    raw = columns.texts(names)
    missing = tf.equal(raw, "")
    texts = filled_texts(raw, imputed, names)
    wanted = tf.constant([value for _, value in pairs])
    hit = tf.cast(tf.equal(tf.gather(texts, owner, axis=1), wanted), tf.float32)
    owned = owner[:, np.newaxis] == np.arange(len(names))  # [values, columns]
    known = tf.matmul(hit, owned.astype(np.float32))  # 0 or 1: the values are distinct
    absent = tf.cast(tf.equal(texts, ""), tf.float32)
    return Block(
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
