"""encode: tokens. A text as the sequence of its token ids: a feature of variable length.

    id 0            padding, which no row holds: the trainer fills up short rows with it
    id 1            a word that the vocabulary lacks
    id 2, 3, ...    known words by falling frequency; with `split: bytes`, the byte's value + 2

A row holds its first `max_length` tokens. The vocabulary counts these tokens of the analysis data.
A missing text has no tokens. The feature has the column's name, with `_` for what TensorFlow does
not take in the name of an input.
"""

from __future__ import annotations

from shared_core.feature_layout import RESERVED_TOKENS, TokenFeature
from transform.block import Separate, tf
from transform.encode.encoder import Encoder, Inputs, Members
from transform.encode.lookup import lookup, lower_case, words
from transform.spec.encoders import Tokens

_BYTES = 256


def _apply(inputs: Inputs, members: Members) -> list[Separate]:
    texts = inputs.dense.texts(members.names)
    groups = [each.group.name for each in members.resolved for _ in each.columns]
    found = []
    for i, (name, option) in enumerate(zip(members.names, members.options, strict=True)):
        file, is_learned = inputs.files[name], option.split == "words"
        if is_learned:
            ids, size = _word_ids(texts[:, i], option, file)
        else:
            ids, size = _byte_ids(texts[:, i], option), _BYTES + RESERVED_TOKENS
        feature = TokenFeature(
            name=file,
            source=name,
            group=groups[i],
            max_length=option.max_length,
            vocabulary_size=None if is_learned else size,
            vocabulary=file if is_learned else None,
        )
        found.append(Separate(ids.to_sparse(), feature, {}, size))
    return found


def _word_ids(texts: tf.Tensor, option: Tokens, file: str) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Return ids of words, int64 `[batch, (tokens)]`, and the number of ids."""
    found = words(texts, lowercase=option.lowercase)[:, : option.max_length]
    ids, known = lookup(found.values, file, top_k=option.top_k, oov_buckets=0)
    return found.with_values(ids + RESERVED_TOKENS), known + RESERVED_TOKENS


def _byte_ids(texts: tf.Tensor, option: Tokens) -> tf.RaggedTensor:
    """Return ids of bytes, int64 `[batch, (tokens)]`."""
    if option.lowercase:
        texts = lower_case(texts)
    found = tf.strings.bytes_split(tf.strings.substr(texts, 0, option.max_length))
    values = tf.reshape(tf.io.decode_raw(found.values, tf.uint8), [-1])
    return found.with_values(tf.cast(values, tf.int64) + RESERVED_TOKENS)


TOKENS = Encoder(
    name="tokens",
    takes={"string": "words"},
    reads="texts",
    apply=_apply,
    endings=lambda option: [],
    names_file=True,
    explain=lambda option, columns, fitted: {"ids": columns[0].vocabulary_size},
)
