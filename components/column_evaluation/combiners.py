"""Add a batch to the accumulators of TFMA's combiners.

Only this module uses private names of TFMA. An adder computes the sums of a batch with NumPy and
adds them to TFMA's accumulator, so that merging, results and keys stay TFMA's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.contrib.aggregates import binary_confusion_matrices as aggregates
from tensorflow_model_analysis.metrics import (
    binary_confusion_matrices,
    calibration,
    calibration_histogram,
    cross_entropy_metrics,
    example_count,
    mean_regression_error,
    metric_specs,
    metric_types,
    metric_util,
    multi_class_confusion_matrix_metrics,
    tf_metric_wrapper,
)
from tensorflow_model_analysis.proto import config_pb2

from components.evaluator_metrics.row_computations import RowCombiner


class ColumnMetric(metric_types.Metric):
    """Another metric, computed from batches: same name, keys and values."""

    def __init__(self, name: str, metric: dict[str, Any]):
        """Wrap a metric.

        Args:
            name: Name of the metric.
            metric: `class_name`, `module` ("" for TFMA's and Keras' own) and `config` of it.
        """
        self.metric = metric_specs.metric_instance(
            config_pb2.MetricConfig(
                class_name=metric["class_name"],
                module=metric["module"],
                config=json.dumps({**metric["config"], "name": name}),
            )
        )
        compute = metric_util.merge_per_key_computations(self._keras_computations)
        super().__init__(compute, name=name, metric=metric)

    def computations(self, *args: Any, **kwargs: Any) -> metric_types.MetricComputations:
        """Return the metric's computations with combiners that add batches."""
        is_keras = not isinstance(self.metric, metric_types.Metric)
        create = super().computations if is_keras else self.metric.computations
        return [
            # Without preprocessors TFMA passes labels, predictions and weights.
            each._replace(combiner=_ColumnCombiner(each.combiner), preprocessors=[])
            if isinstance(each, metric_types.MetricComputation)
            else each
            for each in create(*args, **kwargs)
        ]

    # TFMA looks at the names of the arguments.
    def _keras_computations(
        self,
        name: str,
        metric: dict[str, Any],
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        sub_key: metric_types.SubKey | None = None,
        aggregation_type: metric_types.AggregationType | None = None,
        class_weights: dict[int, float] | None = None,
        example_weighted: bool = False,
    ) -> metric_types.MetricComputations:
        return tf_metric_wrapper.tf_metric_computations(
            {output_name: [self.metric]},
            eval_config=eval_config,
            model_name=model_name,
            sub_key=sub_key,
            aggregation_type=aggregation_type,
            class_weights=class_weights,
            example_weighted=example_weighted,
        )


def to_column_metric(config: config_pb2.MetricConfig) -> None:
    """Change the configuration of a metric into that of its `ColumnMetric`, thresholds aside."""
    if config.class_name == ColumnMetric.__name__:
        return
    text = config.config.strip()
    # TFMA takes the members of a JSON object with and without its braces.
    options = json.loads(text if text.startswith("{") else f"{{{text}}}")
    metric = {"class_name": config.class_name, "module": config.module, "config": options}
    name = metric_specs.metric_instance(config).name
    config.class_name, config.module = ColumnMetric.__name__, ColumnMetric.__module__
    config.config = json.dumps({"name": name, "metric": metric})


class _Batch(NamedTuple):
    """Some rows. Labels and predictions keep their dtype, so that metrics round as TFMA's do.

    Attributes:
        labels: `[rows, labels]`.
        predictions: `[rows, outputs]`.
        weights: `[rows]`, float64.
    """

    labels: np.ndarray
    predictions: np.ndarray
    weights: np.ndarray


def _read_batch(
    element: metric_types.StandardMetricInputs,
    *,
    flatten: bool,
    sub_key: metric_types.SubKey | None = None,
    class_weights: dict[int, float] | None = None,
    **options: Any,
) -> _Batch:
    """Return the rows of a batch of the extractor; a ValueError if they do not belong together.

    `flatten` makes a row of each pair of a label and an output, `[rows * outputs, 1]`; then
    `class_weights` has a factor of each class, 0 where it is missing. `sub_key` selects a class;
    `options` are those of `metric_util.to_label_prediction_example_weight`.
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
    return _Batch(labels, predictions, weights)


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


_Adder = Callable[[Any, Any, metric_types.StandardMetricInputs], Any]
"""(combiner, its accumulator, batch) -> the accumulator with the batch."""


class _ColumnCombiner(beam.CombineFn):
    """A combiner of TFMA, except that it adds batches."""

    def __init__(self, combiner: beam.CombineFn):
        self.combiner = combiner

    def setup(self, *args: Any, **kwargs: Any) -> None:
        self.combiner.setup(*args, **kwargs)

    def create_accumulator(self) -> Any:
        return self.combiner.create_accumulator()

    def add_input(self, accumulator: Any, element: metric_types.StandardMetricInputs) -> Any:
        add = _adder_of(self.combiner)
        assert add is not None  # rows_reason was asked before
        return add(self.combiner, accumulator, element)

    def merge_accumulators(self, accumulators: Any) -> Any:
        # Given a sequence, TFMA's cross entropy and regression errors add the first part twice.
        return self.combiner.merge_accumulators(iter(accumulators))

    def compact(self, accumulator: Any) -> Any:
        return self.combiner.compact(accumulator)

    def extract_output(self, accumulator: Any) -> Any:
        return self.combiner.extract_output(accumulator)


def _adder_of(combiner: Any) -> _Adder | None:
    """Return how to add a batch to a combiner's accumulator, or None if only rows can be added."""
    return _add_rows if isinstance(combiner, RowCombiner) else _ADDERS.get(type(combiner))


def rows_reason(computation: metric_types.MetricComputation) -> str | None:
    """Return why a computation has to add rows one at a time, or None if it can add a batch."""
    combiner, names = computation.combiner, sorted({key.name for key in computation.keys})
    if isinstance(combiner, _ColumnCombiner):
        return None
    what = f"{', '.join(names)} ({type(combiner).__name__})"
    if _adder_of(combiner) is None:
        return f"{what} has no column-wise combiner"
    for key in computation.keys:
        if key.sub_key is not None and (key.sub_key.k is not None or key.sub_key.top_k is not None):
            return f"{what} uses top_k"
    if any(
        type(each) is not metric_types.StandardMetricInputsPreprocessor
        or not _INPUTS.issuperset(each.include_filter)
        for each in computation.preprocessors
    ):
        return f"{what} reads more than labels, predictions and weights"
    if getattr(combiner, "_example_id_key", None) or getattr(
        combiner, "_extract_label_prediction_and_weight", _EXTRACT
    ) is not (_EXTRACT):
        return f"{what} extracts its rows by a function or keeps examples"
    return None


_INPUTS = {constants.LABELS_KEY, constants.PREDICTIONS_KEY, constants.EXAMPLE_WEIGHTS_KEY}
_EXTRACT = metric_util.to_label_prediction_example_weight


def _read(combiner: Any, key: Any, element: Any, *, flatten: bool = True) -> _Batch:
    return _read_batch(
        element,
        eval_config=combiner._eval_config,
        model_name=key.model_name,
        output_name=key.output_name,
        sub_key=key.sub_key,
        class_weights=getattr(combiner, "_class_weights", None),
        example_weighted=combiner._example_weighted,
        flatten=flatten,
    )


def _read_columns(
    combiner: Any, element: Any, *, fractional_labels: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, predictions and weights, float64 `[rows]`."""
    labels, predictions, weights = _read(combiner, combiner._key, element)
    y, p = labels[:, 0].astype(np.float64), predictions[:, 0].astype(np.float64)
    if fractional_labels:
        wrong = y[~((y >= -_EPSILON) & (y <= 1 + _EPSILON))]
        if wrong.size:
            raise ValueError(f"{combiner._key.name}: label {wrong[0]} must be within [0, 1]")
        counted = weights != 0.0  # as TFMA, which does not look at the other rows
        y, p, weights = y[counted], p[counted], weights[counted]
    return y, p, weights


_EPSILON = 1e-7  # as in metric_util.within_interval


def _add_to_histogram(combiner: Any, accumulator: dict[int, Any], element: Any) -> dict[int, Any]:
    y, p, w = _read_columns(combiner, element, fractional_labels=combiner._fractional_labels)
    values = p if combiner._prediction_based_bucketing else y
    if np.isnan(values).any():
        raise ValueError(f"{combiner._key.name}: cannot convert NaN to a bucket of the histogram")
    buckets = combiner._num_buckets
    at = (values - combiner._left) / combiner._range * buckets + 1
    numbers, index = np.unique(np.clip(at, 0, buckets + 1).astype(np.int64), return_inverse=True)
    sums = [np.bincount(index, each, len(numbers)).tolist() for each in (w * y, w * p, w)]
    for number, *values in zip(numbers.tolist(), *sums, strict=True):
        bucket = calibration_histogram.Bucket(number, *values)
        if number in accumulator:
            accumulator[number].merge(bucket)
        else:
            accumulator[number] = bucket
    return accumulator


def _add_to_matrices(combiner: Any, accumulator: Any, element: Any) -> Any:
    fractional = combiner._enable_fractional_labels
    y, p, w = _read_columns(combiner, element, fractional_labels=fractional)
    matrices = combiner._binary_confusion_matrices
    for threshold in matrices._thresholds:
        positive = y if fractional else (y > threshold).astype(np.float64)
        hit = p > threshold
        sums = (
            float(w @ each)
            for each in (
                positive * hit,
                (1 - positive) * ~hit,
                (1 - positive) * hit,
                positive * ~hit,
            )
        )
        accumulator[threshold] = matrices._merge_entry(
            accumulator=accumulator,
            threshold=threshold,
            entry=aggregates._ThresholdEntry(aggregates.Matrix(*sums), [], [], [], []),
        )
    return accumulator


def _add_to_totals(combiner: Any, accumulator: Any, element: Any) -> Any:
    y, p, w = _read_columns(combiner, element)
    accumulator.total_weighted_examples += float(w.sum())
    accumulator.total_weighted_labels += float(w @ y)
    accumulator.total_weighted_predictions += float(w @ p)
    return accumulator


def _add_to_count(combiner: Any, accumulator: float, element: Any) -> float:
    rows = count_rows(element.prediction)
    weights = element.get_example_weights(
        combiner._model_name or None, combiner._output_name or None
    )
    if not combiner._example_weighted or weights is None:
        return accumulator + float(rows)
    if isinstance(weights, dict):
        raise ValueError(
            f"example_count needs the model and the output of its weights: {sorted(weights)}"
        )
    return accumulator + float(np.sum(weights, dtype=np.float64))


def _add_to_error(error: Callable[[np.ndarray], np.ndarray]) -> _Adder:
    def add(combiner: Any, accumulator: Any, element: Any) -> Any:
        labels, predictions, w = _read(combiner, combiner._metric_key, element)
        found = error(np.abs(labels[:, 0] - predictions[:, 0])).astype(np.float64)
        counted = ~np.isnan(found)
        accumulator.total_regression_error += float(found[counted] @ w[counted])
        accumulator.total_example_weights += float(w[counted].sum())
        return accumulator

    return add


def _add_to_cross_entropy(combiner: Any, accumulator: Any, element: Any) -> Any:
    y, p, w = _read(combiner, combiner._metric_key, element, flatten=False)
    smoothing = combiner._label_smoothing
    y = y * (1.0 - smoothing) + 0.5 * smoothing
    with np.errstate(divide="ignore", invalid="ignore"):
        if combiner._from_logits:
            found = np.maximum(p, 0) - p * y + np.log(1 + np.exp(-np.abs(p)))
        else:
            found = -(y * np.log(p)) - (1 - y) * np.log(1 - p)
    accumulator.total_cross_entropy += float(found.mean(axis=1).astype(np.float64) @ w)
    accumulator.total_example_weights += float(w.sum())
    return accumulator


def _add_to_class_matrix(combiner: Any, accumulator: Any, element: Any) -> Any:
    labels, p, w = _read(combiner, combiner._key, element, flatten=False)
    if p.shape[1] == 1:
        raise ValueError(f"{combiner._key.name} needs a model of several classes; it has 1 output")
    if not np.isfinite(labels).all():
        raise ValueError(f"{combiner._key.name}: a label is not a number")
    actual = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0].astype(np.int64)
    predicted = p.argmax(axis=1)
    for threshold in combiner._thresholds:
        # Of later thresholds TFMA compares the output at this index, -1, too.
        best = p[np.arange(len(p)), predicted]
        missing = multi_class_confusion_matrix_metrics.NO_PREDICTED_CLASS_ID
        predicted = np.where(best <= threshold, missing, predicted)
        pairs, index = np.unique(np.stack([actual, predicted]), axis=1, return_inverse=True)
        sums = np.bincount(np.ravel(index), w, pairs.shape[1]).tolist()
        matrix = accumulator.setdefault(threshold, {})
        for pair, value in zip(pairs.T.tolist(), sums, strict=True):
            key = multi_class_confusion_matrix_metrics.MatrixEntryKey(*pair)
            matrix[key] = matrix.get(key, 0.0) + value
    return accumulator


def _add_to_keras(combiner: Any, accumulator: Any, element: Any) -> Any:
    """Fill TFMA's own batches of 1,000 rows, so that Keras' metrics see the same arrays."""
    aggregation = combiner._aggregation_type
    for i, output_name in enumerate(combiner._output_names):
        batch = _read_batch(
            element,
            eval_config=combiner._eval_config,
            model_name=combiner._model_name,
            output_name=output_name,
            sub_key=combiner._sub_key,
            class_weights=combiner._class_weights,
            example_weighted=combiner._example_weighted,
            flatten=bool(aggregation and aggregation.micro_average),
        )
        weights = batch.weights[:, None].astype(np.float32)
        for row in zip(batch.labels, batch.predictions, weights, strict=True):
            accumulator.add_input(i, *row)
    if accumulator.should_flush():
        combiner._process_batch(accumulator)
    return accumulator


def _add_rows(combiner: RowCombiner, accumulator: Any, element: Any) -> Any:
    options = {k: v for k, v in combiner.options.items() if k != "aggregation_type"}
    labels, predictions, weights = _read_batch(element, **options, flatten=combiner.flatten)
    return combiner.add_rows(accumulator, labels[:, 0], predictions, weights)


_ADDERS: dict[type, _Adder] = {
    calibration_histogram._CalibrationHistogramCombiner: _add_to_histogram,
    binary_confusion_matrices._BinaryConfusionMatrixCombiner: _add_to_matrices,
    calibration._WeightedLabelsPredictionsExamplesCombiner: _add_to_totals,
    example_count._ExampleCountCombiner: _add_to_count,
    mean_regression_error._MeanAbsoluteErrorCombiner: _add_to_error(lambda error: error),
    mean_regression_error._MeanSquaredErrorCombiner: _add_to_error(np.square),
    cross_entropy_metrics._BinaryCrossEntropyCombiner: _add_to_cross_entropy,
    multi_class_confusion_matrix_metrics._MultiClassConfusionMatrixCombiner: _add_to_class_matrix,
    tf_metric_wrapper._CompilableMetricsCombiner: _add_to_keras,
}
