"""Return NaN for metrics that some rows do not define, where Keras returns 0.

    AUC, sensitivity at specificity, ...   no row is positive, or none is negative
    precision                              no row is predicted positive
    recall                                 no row is positive
    F-score of a class                     no row has the class, and none is predicted to have it

A 0 would look like the worst possible model. Rows of weight 0 do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from trainer_module.common.tensors import Tensors

_OF_TWO_CLASSES = (
    keras.metrics.AUC,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
)


def defined_result(metric: keras.metrics.Metric) -> Tensors:
    """Return `metric.result()`; NaN if the rows so far do not define it.

    Args:
        metric: A metric. For Keras' classes the check uses their counts, also in a graph.
    """
    inner = metric
    while isinstance(getattr(inner, "metric", None), keras.metrics.Metric):
        inner = inner.metric  # type: ignore[attr-defined]  # of OneHotLabels and the like
    rule = _RULES.get(getattr(type(inner), "result", None))
    return metric.result() if rule is None else rule(inner)


def _two_class_metric(metric: keras.metrics.Metric) -> tf.Tensor:
    # Counts are by threshold, and for multi-label AUC by class; each threshold counts all rows.
    positive = metric.true_positives[0] + metric.false_negatives[0]
    negative = metric.true_negatives[0] + metric.false_positives[0]
    both = keras.ops.all(keras.ops.logical_and(positive > 0, negative > 0))
    return _nan_unless(both, metric.result())


def _precision(metric: keras.metrics.Metric) -> tf.Tensor:
    return _nan_unless(_sum(metric.true_positives, metric.false_positives) > 0, metric.result())


def _recall(metric: keras.metrics.Metric) -> tf.Tensor:
    return _nan_unless(_sum(metric.true_positives, metric.false_negatives) > 0, metric.result())


def _sum(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return the sum `[thresholds]`, or a scalar for one threshold, as `result` does."""
    both = one + other
    return both[0] if both.shape[0] == 1 else both


def _f_score(metric: keras.metrics.Metric) -> tf.Tensor:
    """Average over the classes that occur, as scikit-learn does."""
    right, wrong = metric.true_positives + 0.0, metric.false_positives + metric.false_negatives
    there = right + wrong > 0
    if metric.average in (None, "micro"):
        return _nan_unless(there, metric.result())
    square = metric.beta**2
    taken_for, missed = metric.false_positives + 0.0, metric.false_negatives + 0.0
    whole = (1 + square) * right + square * missed + taken_for
    scores = keras.ops.divide_no_nan((1 + square) * right, whole)
    counted = there if metric.average == "macro" else metric.intermediate_weights + 0.0
    counted = keras.ops.cast(counted, scores.dtype)
    total = keras.ops.sum(counted)
    return _nan_unless(total > 0, keras.ops.divide_no_nan(keras.ops.sum(scores * counted), total))


def _nan_unless(defined: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    return keras.ops.where(defined, result, keras.ops.full_like(result, math.nan))


# By the function that computes the result: a subclass with another `result` has no rule.
_RULES: dict[Callable | None, Callable[[keras.metrics.Metric], tf.Tensor]] = {
    **{kind.result: _two_class_metric for kind in _OF_TWO_CLASSES},
    keras.metrics.Precision.result: _precision,
    keras.metrics.Recall.result: _recall,
    keras.metrics.FBetaScore.result: _f_score,
}
