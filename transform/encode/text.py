"""encode: text. The terms of a text, each with its TF-IDF weight: ids beside floats.

<column>_term_0, _term_1, ...      ids of the row's terms, the one of the largest weight first
<column>_weight_0, _weight_1, ...  their weights; 0 behind the last one

A term t that a row holds n times, in d of the N rows of the analysis data, has the weight

    n · (1 + log((1 + N) / (1 + d)))          with sublinear_tf: (1 + log n) · (...)

divided by the square root of the sum of the squares over all known terms of the row. This is
scikit-learn's `TfidfVectorizer` (smooth_idf, norm="l2"). Of equal weights, the term that is first
in the text comes first. Where a row has more than `max_terms` known terms, those of the smallest
weights are left out; the weights of the others are as with them.

Ids are by falling number of rows; places without a term have the last one. Terms that are not
known count nothing. A missing text has no term, as a text without known ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from shared_core.feature_layout import Column
from transform.analyzers.fitted import FittedColumn
from transform.block import Block, Explanation, IdCount, tf
from transform.encode.encoder import Encoder, Inputs, Members
from transform.encode.lookup import term_counts
from transform.spec.encoders import Text

TERM, WEIGHT = "text", "text_weight"  # kinds of columns
_TERM_ENDING, _WEIGHT_ENDING = "_term_", "_weight_"


class _Bag(NamedTuple):
    """The terms of the largest weights of each row, and the number of ids."""

    ids: tf.Tensor  # int64 [batch, max_terms]
    weights: tf.Tensor  # float32 [batch, max_terms]
    size: tf.Tensor  # int64 scalar


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    """Return two blocks per column: ids and weights."""
    import tensorflow_transform as tft

    texts = inputs.dense.texts(members.names)
    rows = tft.sum(tf.ones_like(texts[:, 0], tf.int64))
    blocks = []
    for i, (name, option) in enumerate(zip(members.names, members.options, strict=True)):
        file = inputs.files[name]
        bag = _bag(texts[:, i], option, file, rows)
        places = range(option.max_terms)
        missing = tf.tile(tf.equal(texts[:, i : i + 1], ""), [1, option.max_terms])
        sources = (name,) * option.max_terms
        for ending, values, size in (
            (_TERM_ENDING, bag.ids, IdCount(bag.size, file, 1)),
            (_WEIGHT_ENDING, bag.weights, None),
        ):
            names = tuple(f"{name}{ending}{place}" for place in places)
            blocks.append(Block(names, values, sources, missing, (size,) * option.max_terms))
    return blocks


def _bag(texts: tf.Tensor, option: Text, file: str, rows: tf.Tensor) -> _Bag:
    found = term_counts(texts, ngrams=option.ngrams)
    ids, in_rows, known = _look_up_terms(found.terms, option, file)
    n, in_rows, rows = (tf.cast(each, tf.float64) for each in (found.count, in_rows, rows))
    idf = 1.0 + tf.math.log((1.0 + rows) / (1.0 + in_rows))
    weights = (1.0 + tf.math.log(n) if option.sublinear_tf else n) * idf
    kept = ids >= 0
    ids, row, weights = (tf.boolean_mask(each, kept) for each in (ids, found.row, weights))
    batch = tf.shape(texts, tf.int64)[0]
    square = tf.math.unsorted_segment_sum(weights * weights, row, batch)
    weights /= tf.gather(tf.sqrt(square), row)
    return _Bag(*_select_largest(ids, weights, row, batch, known, option.max_terms), known + 1)


def _look_up_terms(
    terms: tf.Tensor, option: Text, file: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return ids of terms (-1: not known), the rows that hold each, and the number of known terms.

    The vocabulary's file has lines as `12 good_day`: one analyzer learns both, and the graph reads
    both from it.
    """
    import tensorflow_transform as tft

    vocabulary = tft.vocabulary(
        terms,
        top_k=option.top_k,
        frequency_threshold=option.min_count,
        vocab_filename=file,
        store_frequency=True,
    )

    def look_up(x: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with ExitStack() as stack:
            if tf.inside_function() and not tf.is_symbolic_tensor(path):
                # As tft.apply_vocabulary: else every call would read the file again.
                stack.enter_context(tf.init_scope())
            line, count = (
                tf.lookup.StaticHashTable(
                    tf.lookup.TextFileInitializer(
                        path, tf.string, 1, tf.int64, field, delimiter=" "
                    ),
                    default_value=-1,
                )
                for field in (tf.lookup.TextFileIndex.LINE_NUMBER, 0)
            )
            size = line.size()
        return tf.stack([line.lookup(x), count.lookup(x)]), size

    found = tft.apply_vocabulary(terms, vocabulary, lookup_fn=look_up)
    known = tft.get_num_buckets_for_transformed_feature(found)
    return found[0], tf.maximum(found[1], 0), known


def _select_largest(
    ids: tf.Tensor, weights: tf.Tensor, row: tf.Tensor, rows: tf.Tensor, none: tf.Tensor, n: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ids and weights `[terms]` as `[rows, n]`, the largest weights first."""

    def dense(values: tf.Tensor, default: str | int | float) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_value_rowids(values, row, rows, validate=False)
        wide = ragged.to_tensor(default)
        width = tf.maximum(n - tf.shape(wide)[1], 0)
        return tf.pad(wide, [[0, 0], [0, width]], constant_values=default)

    # top_k takes the first of equal ones.
    largest, place = tf.math.top_k(dense(weights, tf.constant(0.0, tf.float64)), k=n)
    found = tf.gather(dense(ids, none), place, batch_dims=1)
    return (
        tf.ensure_shape(found, [None, n]),
        tf.ensure_shape(tf.cast(largest, tf.float32), [None, n]),
    )


def _endings(option: Text) -> list[str]:
    places = range(option.max_terms)
    return [f"{ending}{i}" for ending in (_TERM_ENDING, _WEIGHT_ENDING) for i in places]


def _explain(option: Text, columns: Sequence[Column], fitted: FittedColumn) -> Explanation:
    size = columns[0].vocabulary_size
    return {} if size is None else {"terms": size - columns[0].extra_ids}


TEXT = Encoder(
    name="text",
    takes={"string": "words"},
    reads="texts",
    apply=_apply,
    endings=_endings,
    kind_of=lambda _, ending: TERM if ending.startswith(_TERM_ENDING) else WEIGHT,
    names_file=True,
    explain=_explain,
    is_aspect=True,
)
