"""Label and example weight, checked over the analysis data and never in the way at serving.

The checks are part of the analysis (a Beam combiner raises), not assertions in the transform
graph: that graph runs at serving too, where TFT feeds made-up values for label columns that the
request lacks. A row whose label is missing or invalid outside the analysis data gets NaN (float
labels), `MISSING_INT` (whole numbers of a regression) or -1 (class ids), so that a loss or a metric
on it cannot look like a number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from shared_core.feature_layout import MISSING_INT
from transform import compat
from transform.analyzers.fitted import keep
from transform.block import Array, Columns
from transform.columns.inputs import dense_ints, stack_numbers, stack_texts, tensor_type
from transform.encode.lookup import LABEL_VOCABULARY, lookup
from transform.spec.features import Label

LABEL_EXTREMES = "label_extremes"  # what the smallest and largest float label are kept as


class _Checked(NamedTuple):
    """What is counted of a target; float64 scalars, or `[accumulators]` of each."""

    rows: Array
    missing: Array
    invalid: Array
    example: Array  # the largest invalid value, -inf without one
    minimum: Array  # of the valid values
    maximum: Array


class _LabelOutput(NamedTuple):
    """The label as Transform writes it."""

    values: tf.Tensor  # float32 or int64 [batch, 1]
    classes: int | tf.Tensor | None  # int64 scalar: known after the analysis; None: regression


def label_output(columns: Columns, label: Label) -> _LabelOutput:
    """Build and check the label.

    During the analysis, a Beam combiner raises ValueError if it is missing in a row, not 0 or 1
    (binary), no class id (multiclass), or the same in all rows.
    """
    kind = tensor_type(columns[label.column])
    is_text = kind == "string"
    if label.kind == "multiclass" and is_text:
        return _named_classes(columns, label)
    if label.kind == "regression" and kind == "int":
        # float32 is 128 coarse at 1.7e9: who takes the mean off gets every digit.
        whole = dense_ints(columns[label.column], label.column, MISSING_INT)
        missing = tf.equal(whole, MISSING_INT)
        x = tf.where(missing, tf.constant(np.nan, tf.float64), tf.cast(whole, tf.float64))
        _check(label, x, missing, tf.ones_like(missing))
        return _LabelOutput(whole, None)
    x = (
        _binary_of(columns, label, is_text)
        if label.positive is not None
        else stack_numbers(columns, [label.column])
    )
    missing = tf.math.is_nan(x)
    valid = tf.ones_like(missing)
    if label.kind == "binary":
        valid = tf.logical_or(tf.equal(x, 0.0), tf.equal(x, 1.0))
    elif label.kind == "multiclass":
        valid = tf.logical_and(x >= 0, tf.equal(x, tf.floor(x)))
    else:
        valid = tf.abs(x) <= float(np.finfo(np.float32).max)
    checked = _check(label, x, missing, valid)
    usable = tf.logical_and(valid, tf.logical_not(missing))
    if label.kind == "multiclass":
        ids = tf.where(usable, tf.cast(tf.where(usable, x, 0.0), tf.int64), -1)
        return _LabelOutput(ids, tf.cast(checked.maximum, tf.int64) + 1)
    values = tf.where(usable, tf.cast(x, tf.float32), np.nan)
    if label.kind == "binary":
        return _LabelOutput(values, 2)
    extremes = tf.stack([checked.minimum, checked.maximum])[tf.newaxis]
    with tf.control_dependencies([keep(extremes, LABEL_EXTREMES, [label.column])]):
        return _LabelOutput(tf.identity(values), None)


def weight_output(columns: Columns, name: str) -> tf.Tensor:
    """Return example weights, float32 `[batch, 1]`; a missing or negative weight becomes NaN.

    During the analysis, a Beam combiner raises ValueError for one.
    """
    x = stack_numbers(columns, [name])
    missing = tf.math.is_nan(x)
    valid = x >= 0
    _analyze(
        _TargetCombiner(f"weight {name!r}", "is negative", constant_fails=False), x, missing, valid
    )
    return tf.where(valid, tf.cast(x, tf.float32), np.nan)


def _binary_of(columns: Columns, label: Label, is_text: bool) -> tf.Tensor:
    """Return 1 where the label is `positive`, else 0, NaN where missing; float64 `[batch, 1]`."""
    if is_text:
        text = stack_texts(columns, [label.column])
        missing, hit = tf.equal(text, ""), tf.equal(text, str(label.positive))
    else:
        x = stack_numbers(columns, [label.column])
        assert label.positive_number is not None
        # In the column's own type: a float32 of 0.1 is not the float64 of 0.1.
        kind = columns[label.column].dtype
        positive = tf.constant(label.positive_number, kind if kind.is_floating else tf.float64)
        missing, hit = tf.math.is_nan(x), tf.equal(x, tf.cast(positive, tf.float64))
    return tf.where(missing, tf.constant(np.nan, tf.float64), tf.cast(hit, tf.float64))


def _named_classes(columns: Columns, label: Label) -> _LabelOutput:
    text = stack_texts(columns, [label.column])
    missing = tf.equal(text, "")
    # Only whether all rows agree is asked of this number, in the same pass as the rest.
    fingerprint = tf.cast(tf.strings.to_hash_bucket_fast(text, 2**52), tf.float64)
    x = tf.where(missing, tf.constant(np.nan, tf.float64), fingerprint)
    _check(label, x, missing, tf.ones_like(missing), named=True)
    ids, classes = lookup(text[:, 0], LABEL_VOCABULARY, top_k=None, oov_buckets=0)
    return _LabelOutput(ids[:, tf.newaxis], classes)


def _check(
    label: Label, x: tf.Tensor, missing: tf.Tensor, valid: tf.Tensor, *, named: bool = False
) -> _Checked:
    complaint = {
        "binary": "is neither 0 nor 1 (name the value that counts as 1 in label.positive)",
        "multiclass": "is no class id 0, 1, 2, ...",
        "regression": "is beyond 3.4e38, the largest float32",
    }[label.kind]
    what = f"label {label.column!r}"
    return _analyze(_TargetCombiner(what, complaint, named=named), x, missing, valid)


def _analyze(
    combiner: _TargetCombiner, x: tf.Tensor, missing: tf.Tensor, valid: tf.Tensor
) -> _Checked:
    usable = tf.logical_and(valid, tf.logical_not(missing))
    invalid = tf.logical_not(tf.logical_or(valid, missing))
    infinity = tf.constant(np.inf, tf.float64)
    batch = _Checked(
        rows=tf.cast(tf.size(x), tf.float64),
        missing=tf.reduce_sum(tf.cast(missing, tf.float64)),
        invalid=tf.reduce_sum(tf.cast(invalid, tf.float64)),
        example=tf.reduce_max(tf.where(invalid, x, -infinity)),
        minimum=tf.reduce_min(tf.where(usable, x, infinity)),
        maximum=tf.reduce_max(tf.where(usable, x, -infinity)),
    )
    (merged,) = compat.combine(combiner, tf.stack(batch), name="target")
    return _Checked(*tf.unstack(merged, len(_Checked._fields)))


class _TargetCombiner(compat.Combiner):
    """Counts rows, missing and invalid values; accumulates `[6]`, a field of `_Checked` each."""

    outputs = ((tf.float64, [6]),)

    def __init__(
        self, what: str, complaint: str, *, constant_fails: bool = True, named: bool = False
    ):
        # named: the values are fingerprints, which no message shows
        self._what, self._complaint = what, complaint
        self._constant_fails, self._named = constant_fails, named

    def __repr__(self) -> str:
        return f"<TargetCombiner v1 {self._what} {self._constant_fails} {self._named}>"

    def create_accumulator(self) -> np.ndarray:
        return np.asarray(_Checked(0, 0, 0, -np.inf, np.inf, -np.inf), np.float64)

    def merge(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = _Checked(*np.stack([a, b], axis=1))
        merged = _Checked(
            rows=parts.rows.sum(),
            missing=parts.missing.sum(),
            invalid=parts.invalid.sum(),
            example=parts.example.max(),
            minimum=parts.minimum.min(),
            maximum=parts.maximum.max(),
        )
        return np.asarray(merged, np.float64)

    def extract_output(self, accumulator: np.ndarray) -> list[np.ndarray]:
        found = _Checked(*np.asarray(accumulator, np.float64).tolist())
        rows, missing, invalid = int(found.rows), int(found.missing), int(found.invalid)
        if rows and missing == rows:
            raise ValueError(f"{self._what} is missing in all {rows} rows; use another column")
        if missing:
            raise ValueError(
                f"{self._what} is missing in {missing} of {rows} rows; leave these rows out of "
                "the data, or give them a value in features.derive"
            )
        if invalid:
            raise ValueError(
                f"{self._what} {self._complaint} in {invalid} of {rows} rows, "
                f"for example {found.example:g}"
            )
        if rows and found.minimum == found.maximum and self._constant_fails:
            value = "one value" if self._named else f"value {found.minimum:g}"
            raise ValueError(
                f"{self._what} is constant ({value} in all {rows} rows): nothing can be learned "
                "from it; use another column, or more data"
            )
        return [np.asarray(accumulator, np.float64)]
