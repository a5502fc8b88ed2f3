"""Labels, predictions and weights of a batch, as TFMA's combiners read them row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util


class Batch(NamedTuple):
    """Some rows. Labels and predictions keep their dtype, so that metrics round as TFMA's do.

    Attributes:
        labels: `[rows, labels]`.
        predictions: `[rows, outputs]`.
        weights: `[rows]`, float64.
    """

    labels: np.ndarray
    predictions: np.ndarray
    weights: np.ndarray


def read_batch(
    element: metric_types.StandardMetricInputs,
    *,
    flatten: bool,
    sub_key: metric_types.SubKey | None = None,
    class_weights: dict[int, float] | None = None,
    **options: Any,
) -> Batch:
    """Return the rows of a batch.

    Args:
        element: A batch of the extractor.
        flatten: Make a row of each pair of a label and an output: `[rows * outputs, 1]`.
        sub_key: A class whose label and output to select, or None.
        class_weights: Class -> factor of its weights; missing classes get 0. Needs `flatten`.
        options: `eval_config`, `model_name`, `output_name` and `example_weighted` of
            `metric_util.to_label_prediction_example_weight`.

    Raises:
        ValueError: Labels, predictions and weights do not belong together, or the element is a row.
    """
    # TFMA selects model, output and prediction key; it treats a batch as one row with more axes.
    ((labels, predictions, weights),) = metric_util.to_label_prediction_example_weight(
        element, **options, flatten=False, squeeze=False
    )
    if labels.ndim != 2 or predictions.ndim != 2 or len(labels) != len(predictions):
        raise ValueError(
            f"labels {labels.shape} and predictions {predictions.shape} are not the columns of a "
            'batch; ColumnMetric needs the extractors of module_path="components.column_evaluation"'
        )
    rows = len(labels)
    weights = np.asarray(weights, np.float64).ravel()
    if weights.size not in (1, rows):
        raise ValueError(f"{weights.size} weights for {rows} rows: a row needs one weight")
    weights = np.broadcast_to(weights, [rows])
    if sub_key is not None and sub_key.class_id is not None:
        labels, predictions = metric_util.select_class_id(sub_key.class_id, labels, predictions)
    if class_weights and not flatten:
        raise ValueError(f"class_weights {class_weights} need a metric that averages over classes")
    if flatten:
        outputs = predictions.shape[1]
        if labels.shape != predictions.shape:
            if labels.shape[1] != 1:
                raise ValueError(f"{labels.shape[1]} labels for {outputs} outputs")
            labels = metric_util.one_hot(labels, predictions)
        factors = [class_weights.get(i, 0.0) if class_weights else 1.0 for i in range(outputs)]
        weights = np.ravel(weights[:, None] * factors)
        labels, predictions = labels.reshape([-1, 1]), predictions.reshape([-1, 1])
    return Batch(labels, predictions, weights)


def count_rows(values: Any) -> int:
    """Return the rows of a batch's predictions, which may be nested dicts of arrays.

    Raises:
        ValueError: The values are those of a row.
    """
    while isinstance(values, Mapping):
        values = next(iter(values.values()))
    if np.ndim(values) != 2:
        raise ValueError(
            f"predictions of shape {np.shape(values)} are not a batch; ColumnMetric needs the "
            'extractors of module_path="components.column_evaluation"'
        )
    return len(values)


def select_rows(value: Any, at: np.ndarray | slice) -> Any:
    """Return some rows of an array, of each array in nested dicts, or None for None."""
    if isinstance(value, Mapping):
        return {key: select_rows(each, at) for key, each in value.items()}
    return None if value is None else value[at]
