"""Metrics that mean nothing of some rows: NaN there, where Keras gives 0.

    AUC, sensitivity at specificity, ...   no row is positive, or none is negative
    precision                              no row is taken for positive
    recall                                 no row is positive
    F-score of a class                     no row is of the class, and none is taken for it

A 0 would pass for the worst model there is. Rows of weight 0 do not count.
"""

from __future__ import annotations

import math
from typing import Any

import keras

OF_TWO_CLASSES = (
    keras.metrics.AUC,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
)


def defined_result(metric: keras.metrics.Metric) -> Any:
    """Returns `metric.result()`, NaN where the rows so far do not define it.

    Args:
        metric: Any; of Keras' own the counts that it keeps tell, also in a graph.
    """
    inner = metric
    while isinstance(getattr(inner, "metric", None), keras.metrics.Metric):
        inner = inner.metric  # type: ignore[attr-defined]  # of OneHotLabels and the like
    rule = _RULES.get(getattr(type(inner), "result", None))
    return metric.result() if rule is None else rule(inner)


def _of_two_classes(metric: Any) -> Any:
    # By threshold, and for AUC of several labels by class; each threshold counts all rows.
    positive = metric.true_positives[0] + metric.false_negatives[0]
    negative = metric.true_negatives[0] + metric.false_positives[0]
    both = keras.ops.all(keras.ops.logical_and(positive > 0, negative > 0))
    return _where(both, metric.result())


def _precision(metric: Any) -> Any:
    return _where(_sum(metric.true_positives, metric.false_positives) > 0, metric.result())


def _recall(metric: Any) -> Any:
    return _where(_sum(metric.true_positives, metric.false_negatives) > 0, metric.result())


def _sum(one: Any, other: Any) -> Any:
    """Of `[thresholds]`, as `result` gives it: without the axis where there is one threshold."""
    both = one + other
    return both[0] if both.shape[0] == 1 else both


def _f_score(metric: Any) -> Any:
    """A mean over classes is of those that there are, as that of scikit-learn."""
    right, wrong = metric.true_positives + 0.0, metric.false_positives + metric.false_negatives
    there = right + wrong > 0
    if metric.average in (None, "micro"):
        return _where(there, metric.result())
    square = metric.beta**2
    taken_for, missed = metric.false_positives + 0.0, metric.false_negatives + 0.0
    whole = (1 + square) * right + square * missed + taken_for
    scores = keras.ops.divide_no_nan((1 + square) * right, whole)
    counted = there if metric.average == "macro" else metric.intermediate_weights + 0.0
    counted = keras.ops.cast(counted, scores.dtype)
    total = keras.ops.sum(counted)
    return _where(total > 0, keras.ops.divide_no_nan(keras.ops.sum(scores * counted), total))


def _where(defined: Any, result: Any) -> Any:
    return keras.ops.where(defined, result, keras.ops.full_like(result, math.nan))


_RULES: dict[Any, Any] = {
    **{kind.result: _of_two_classes for kind in OF_TWO_CLASSES},
    keras.metrics.Precision.result: _precision,
    keras.metrics.Recall.result: _recall,
    keras.metrics.FBetaScore.result: _f_score,
}
"""By the function that computes it: nothing is known of a class that computes otherwise."""
