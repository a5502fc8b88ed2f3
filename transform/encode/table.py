"""Every encoder by its name under `encode:`, and crosses: one id per combination of values.

The combination is a text: the columns' texts, joined by the unit separator (U+001F), a float's
bucket in its place. A U+001F within a text is written as U+001E and 1, and a U+001E as itself and
0, so that no two combinations become one text. It is encoded as any text, by hash or vocabulary;
missing in one column is missing in the cross.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transform.block import Block, Separate, tf
from transform.encode.date import DATE
from transform.encode.encoder import Encoder, Inputs, Members
from transform.encode.ids import BUCKETIZE, HASH, INTEGER, VOCABULARY
from transform.encode.image import IMAGE
from transform.encode.indicators import MULTI_HOT, ONE_HOT
from transform.encode.text import TEXT
from transform.encode.tokens import TOKENS
from transform.spec.features import Cross
from transform.spec.group import ResolvedGroup

ENCODERS: dict[str, Encoder] = {
    encoder.name: encoder
    for encoder in (
        *(VOCABULARY, INTEGER, BUCKETIZE, HASH, ONE_HOT, MULTI_HOT, DATE, TEXT, TOKENS, IMAGE),
    )
}
_SEPARATOR = "\x1f"
_ESCAPES = (("\x1e", "\x1e0"), (_SEPARATOR, "\x1e1"))


def encoded(groups: Sequence[ResolvedGroup], inputs: Inputs) -> list[Block | Separate]:
    """Encode the columns of all groups with `encode`, those of one encoder together."""
    members: dict[str, list[ResolvedGroup]] = {}
    for each in groups:
        if each.group.encode is not None:
            members.setdefault(each.group.kind, []).append(each)
    return [
        block
        for name, mine in members.items()
        for block in ENCODERS[name].apply(inputs, Members(tuple(mine)))
    ]


def cross_texts(crosses: Sequence[Cross], types: Mapping[str, object]) -> list[str]:
    """Return the columns that take part as texts; a float takes part with its bucket."""
    names = [n for cross in crosses for n in cross.columns if types[n] != "float"]
    return list(dict.fromkeys(names))


def crossed(crosses: Sequence[Cross], inputs: Inputs, blocks: Sequence[Block]) -> list[Block]:
    """Encode all crosses: one block each, int64 `[batch, 1]`.

    `inputs` has texts and types of their columns, and their vocabulary files; `blocks` the buckets
    of the floats.
    """
    names = cross_texts(crosses, inputs.types)
    texts = inputs.dense.texts(names) if names else tf.zeros([0, 0], tf.string)
    for pattern, rewrite in _ESCAPES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    parts = {name: (texts[:, i], tf.equal(texts[:, i], "")) for i, name in enumerate(names)}
    floats = {name for cross in crosses for name in cross.columns} - set(names)
    for block in blocks:
        for i, name in enumerate(block.names):
            if name in floats:
                parts[name] = (tf.strings.as_string(block.values[:, i]), block.missing[:, i])
    outputs = []
    for cross in crosses:
        of_columns, missing = zip(*(parts[name] for name in cross.columns), strict=True)
        absent = tf.reduce_any(tf.stack(missing, axis=1), axis=1)
        text = tf.where(absent, "", tf.strings.join(of_columns, _SEPARATOR))
        of_texts = ENCODERS[cross.encode.kind].of_texts
        assert of_texts is not None
        ids, size = of_texts(text, cross.encode.option, inputs.files.get(cross.name, ""))
        ids, absent = ids[:, tf.newaxis], absent[:, tf.newaxis]
        outputs.append(Block((cross.name,), ids, (cross.source,), absent, (size,)))
    return outputs
