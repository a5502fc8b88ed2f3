"""Keras metrics by name, as the kind of label means them."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from trainer_module.model_context import LabelKind
from trainer_module.names import nearest

DEFAULT_METRICS = {
    "binary": ("auc", "accuracy"),
    "multiclass": ("accuracy",),
    "regression": ("mean_absolute_error",),
}
# Keras' default of 200 thresholds shows AUC to about two decimals.
_AUC_THRESHOLDS = 1000


def create_metric(name: str, kind: LabelKind) -> keras.metrics.Metric:
    """Returns the metric; call it in the strategy's scope.

    "accuracy" is that of the label's kind: Keras' class of that name compares probabilities with
    classes for equality.

    Raises:
        ValueError: Keras has no such metric.
    """
    if name.lower() in ("accuracy", "acc"):
        if kind == "multiclass":
            return keras.metrics.SparseCategoricalAccuracy(name=name)
        return keras.metrics.BinaryAccuracy(name=name)
    if name.lower() == "auc":
        return keras.metrics.AUC(num_thresholds=_AUC_THRESHOLDS, name=name)
    classes = {
        key.lower(): value for key, value in vars(keras.metrics).items() if inspect.isclass(value)
    }
    kind_of: Any = classes.get(name.lower().replace("_", ""))
    if kind_of is not None and kind_of is not keras.metrics.Metric:
        return kind_of(name=name)
    found: Any
    try:
        found = keras.metrics.get(name)
    except ValueError:
        found = None
    if found is None:
        known = [key for key in vars(keras.metrics) if not key.startswith("_")]
        raise ValueError(f"trainer.metrics={name!r} is not a Keras metric; {nearest(name, known)}")
    if isinstance(found, type):
        make: Any = found
        return make(name=name)
    return keras.metrics.MeanMetricWrapper(found, name=name)
