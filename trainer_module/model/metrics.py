"""Create Keras metrics by name, for the kind of the label, with NaN where rows do not define them.

Keras returns 0 there, which would look like the worst model. Rows of weight 0 do not count.

    AUC, sensitivity at specificity, ...   no row is positive, or none is negative
    precision                              no row is predicted positive
    recall                                 no row is positive
    F-score of a class                     no row has the class, and none is predicted to have it
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shared_core.nearest import nearest
from trainer_module.common.tensors import Json, Tensors
from trainer_module.common.user_values import import_dotted
from trainer_module.data.label_scale import LabelScale
from trainer_module.model.model_context import LabelKind

# Keras' default of 200 thresholds gives AUC to about two decimals.
_AUC_THRESHOLDS = 1000
_OF_TWO_CLASSES = (
    keras.metrics.AUC,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
)


def create_metric(name: str, kind: LabelKind) -> keras.metrics.Metric:
    """Return the metric. Call it in the strategy's scope.

    Keras' classes are adapted to the kind of the label. Otherwise `Accuracy` would compare
    probabilities with classes for equality, `F1Score` would predict positive for every row of a
    binary label, and metrics that expect one-hot labels would broadcast classes against
    probabilities.

    The name is Keras' (`auc`, `TopKCategoricalAccuracy`), or the dotted path of a Metric class, of
    a function without arguments that returns a metric, or of a function (labels, outputs) ->
    values; then the metric has the part after the last dot as its name.
    """
    metric = _custom_metric(name) if "." in name else _keras_metric(name, kind)
    metric.name = result_name(name)
    return metric


def result_name(name: str) -> str:
    """Return the name of the metric in results."""
    return name.rpartition(".")[2]


def values_by_name(name: str, result: Tensors) -> dict[str, float]:
    """Return a metric's result by name: `f1_score`, or `f1_score/0`, `f1_score/1` per class."""
    if isinstance(result, dict):
        return {f"{name}/{key}": float(value) for key, value in result.items()}
    values = np.asarray(result).reshape(-1)
    if len(values) == 1:
        return {name: float(values[0])}
    return {f"{name}/{i}": float(value) for i, value in enumerate(values)}


class _MetricWrapper(keras.metrics.Metric):
    """A metric that gets other labels or outputs; subclasses define `update_state`."""

    def __init__(self, metric: keras.metrics.Metric) -> None:
        """Wrap the metric and take its name. Call it in the strategy's scope."""
        super().__init__(name=metric.name, dtype=metric.dtype)
        self.metric = metric

    def result(self) -> Tensors:
        """Return the metric's result."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Reset the metric."""
        self.metric.reset_state()


class OneHotLabels(_MetricWrapper):
    """Adapt a metric that expects one-hot labels to class labels `[rows, 1]` or `[rows]`."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Add a batch; outputs are `[rows, classes]`."""
        classes = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
        one_hot = keras.ops.one_hot(classes, y_pred.shape[-1], dtype=y_pred.dtype)
        self.metric.update_state(one_hot, y_pred, sample_weight=sample_weight)


class InOwnUnit(_MetricWrapper):
    """Compute a metric of scaled labels and outputs in the label's own unit."""

    def __init__(self, metric: keras.metrics.Metric, scale: LabelScale) -> None:
        """Wrap the metric and take its name. Call it in the strategy's scope."""
        super().__init__(metric)
        self.scale = scale

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Add a batch of scaled labels and outputs."""
        dtype = "float64" if self.metric.dtype == "float64" else "float32"
        labels, outputs = (
            tf.cast(self.scale.unscaled(scaled), dtype) for scaled in (y_true, y_pred)
        )
        check_labels(self.metric, labels, outputs, sample_weight)
        self.metric.update_state(labels, outputs, sample_weight=sample_weight)


def check_labels(
    metric: keras.metrics.Metric, labels: Tensors, outputs: Tensors, weights: Tensors
) -> None:
    """Raise ValueError if a Keras metric would return a wrong number instead of an error.

    Structures of tensors are not checked.
    """
    if weights is not None and "int" in str(metric.dtype):
        raise ValueError(
            f"metric {metric.name!r} counts in {metric.dtype}, where weights lose their fractions: "
            "create it with dtype='float32'."
        )
    ranks = [getattr(getattr(tensor, "shape", None), "rank", None) for tensor in (labels, outputs)]
    if None in ranks:
        return
    label, output = list(labels.shape), list(outputs.shape)
    width = label[-1] if len(label) == len(output) else 1
    if width == output[-1] or None in (width, output[-1]) or not _compares_elementwise(metric):
        return
    raise ValueError(
        f"metric {metric.name!r} compares labels of shape {labels.shape} with outputs of shape "
        f"{outputs.shape} value by value: use its Sparse... variant for labels that are classes, "
        "or trainer_module.model.metrics.OneHotLabels(metric)."
    )


def _compares_elementwise(metric: keras.metrics.Metric) -> bool:
    owner: object = getattr(metric, "_fn", None) or type(metric)
    if not getattr(owner, "__module__", "").startswith("keras."):
        return False  # a user's metric handles its labels
    takes_classes = getattr(metric, "sparse_y_true", False) and not metric.sparse_y_pred
    return not takes_classes and "sparse" not in getattr(owner, "__name__", "").lower()


def _keras_metric(name: str, kind: LabelKind) -> keras.metrics.Metric:
    short = name.lower().replace("_", "")
    if short in ("accuracy", "acc"):
        if kind == "multiclass":
            return keras.metrics.SparseCategoricalAccuracy(name=name)
        return keras.metrics.BinaryAccuracy(name=name)
    options: dict[str, Json] = {}
    if kind == "regression":
        options = {"dtype": "float64"}  # float32 is 128 coarse at 1.7e9
    elif short == "auc":
        options = {"num_thresholds": _AUC_THRESHOLDS, "multi_label": kind == "multiclass"}
    elif short in ("f1score", "fbetascore"):
        options = {"average": "macro"} if kind == "multiclass" else {"threshold": 0.5}
    elif short.endswith("iou"):
        options = {"dtype": "float32"}  # Keras' integer dtype would truncate fractional weights
    metric = _metric_by_name(name, options)
    if kind == "multiclass" and _compares_elementwise(metric):
        return OneHotLabels(metric)
    return metric


def _metric_by_name(name: str, options: dict[str, Json]) -> keras.metrics.Metric:
    classes = {
        key.lower(): value for key, value in vars(keras.metrics).items() if inspect.isclass(value)
    }
    found: Any = classes.get(name.lower().replace("_", ""))
    if found is None or found is keras.metrics.Metric:
        try:
            found = keras.metrics.get(name)
        except ValueError:
            found = None
    if found is None:
        known = [key.lower() for key in vars(keras.metrics) if not key.startswith("_")]
        raise ValueError(
            f"trainer.metrics={name!r} is not a Keras metric; {nearest(name.lower(), known)}"
        )
    if isinstance(found, keras.metrics.Metric):  # for an abbreviation, such as mse
        return type(found).from_config({**found.get_config(), **options})
    if not isinstance(found, type):
        return keras.metrics.MeanMetricWrapper(found, name=name, **options)
    try:
        return found(name=name, **options)
    except TypeError as error:
        raise ValueError(
            f"trainer.metrics={name!r} needs arguments ({error}): give the dotted path of a "
            "function without arguments that returns the metric."
        ) from None


def _custom_metric(path: str) -> keras.metrics.Metric:
    found = import_dotted(path, field="trainer.metrics")
    if not callable(found):
        raise ValueError(
            f"trainer.metrics={path!r} is a {type(found).__name__}: give a keras.metrics.Metric "
            "class, a function that returns one, or a function (labels, outputs) -> values."
        )
    parameters = inspect.signature(found).parameters.values()
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) == 2 and not isinstance(found, type):
        return keras.metrics.MeanMetricWrapper(found, name=result_name(path))
    made = found() if not needed else None
    if not isinstance(made, keras.metrics.Metric):
        raise ValueError(
            f"trainer.metrics={path!r} does not return a keras.metrics.Metric when called without "
            "arguments: return one from a function, or give a function (labels, outputs) -> values."
        )
    return made


def defined_result(metric: keras.metrics.Metric) -> Tensors:
    """Return `metric.result()`; NaN if the rows so far do not define it."""
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
    keras.metrics.Precision.result: lambda metric: _nan_unless(
        _sum(metric.true_positives, metric.false_positives) > 0, metric.result()
    ),
    keras.metrics.Recall.result: lambda metric: _nan_unless(
        _sum(metric.true_positives, metric.false_negatives) > 0, metric.result()
    ),
    keras.metrics.FBetaScore.result: _f_score,
}
