"""Add a batch to the accumulators of TFMA's combiners.

Only this module uses private names of TFMA. An adder computes the sums
of a batch with NumPy and adds them to TFMA's accumulator, so that merging, results and keys stay
TFMA's. Only a histogram has another accumulator, `Buckets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    metric_types,
    metric_util,
    multi_class_confusion_matrix_metrics,
    tf_metric_wrapper,
)

from components.column_evaluation.read_batch import Batch, count_rows, read_batch
from components.evaluator_metrics.row_computations import RowCombiner

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


class _HistogramCombiner(_ColumnCombiner):
    """A histogram that has arrays for TFMA's dict of objects, each of which Beam would pickle."""

    def create_accumulator(self) -> _Buckets:
        return _Buckets(np.zeros([0], np.int64), np.zeros([3, 0]))

    def merge_accumulators(self, accumulators: Iterable[_Buckets]) -> _Buckets:
        return _merge_buckets(accumulators)

    def compact(self, accumulator: _Buckets) -> _Buckets:
        return accumulator

    def extract_output(self, accumulator: _Buckets) -> Any:
        numbers, sums = accumulator
        columns = zip(numbers.tolist(), *sums.tolist(), strict=True)
        buckets = (calibration_histogram.Bucket(*values) for values in columns)
        return self.combiner.extract_output({each.bucket_id: each for each in buckets})


class _Buckets(NamedTuple):
    """The buckets of a histogram that have rows.

    Attributes:
        numbers: TFMA's number of each bucket, int64 `[buckets]`.
        sums: Weighted labels, weighted predictions and weights, float64 `[3, buckets]`.
    """

    numbers: np.ndarray
    sums: np.ndarray


def _merge_buckets(parts: Iterable[_Buckets]) -> _Buckets:
    """Add up buckets of the same number, in one part or in several."""
    numbers, sums = map(np.hstack, zip(*parts, strict=True))
    found = np.flatnonzero(np.bincount(numbers))
    return _Buckets(found, np.stack([np.bincount(numbers, each)[found] for each in sums]))


def to_column_combiner(combiner: beam.CombineFn) -> beam.CombineFn:
    """Return a combiner of batches for a combiner of TFMA that `rows_reason` accepts."""
    is_histogram = isinstance(combiner, calibration_histogram._CalibrationHistogramCombiner)
    return (_HistogramCombiner if is_histogram else _ColumnCombiner)(combiner)


def is_column_combiner(combiner: beam.CombineFn) -> bool:
    """Return whether a combiner is one of `to_column_combiner`."""
    return isinstance(combiner, _ColumnCombiner)


def _adder_of(combiner: Any) -> _Adder | None:
    """Return how to add a batch to a combiner's accumulator, or None if only rows can be added."""
    return _add_rows if isinstance(combiner, RowCombiner) else _ADDERS.get(type(combiner))


def rows_reason(computation: metric_types.MetricComputation) -> str | None:
    """Return why a computation has to add rows one at a time, or None if it can add a batch."""
    combiner, names = computation.combiner, sorted({key.name for key in computation.keys})
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


def _read(combiner: Any, key: Any, element: Any, *, flatten: bool = True) -> Batch:
    return read_batch(
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


def _add_to_histogram(combiner: Any, accumulator: _Buckets, element: Any) -> _Buckets:
    y, p, w = _read_columns(combiner, element, fractional_labels=combiner._fractional_labels)
    values = p if combiner._prediction_based_bucketing else y
    if np.isnan(values).any():
        raise ValueError(f"{combiner._key.name}: cannot convert NaN to a bucket of the histogram")
    buckets = combiner._num_buckets
    at = (values - combiner._left) / combiner._range * buckets + 1
    numbers = np.clip(at, 0, buckets + 1).astype(np.int64)
    return _merge_buckets([accumulator, _Buckets(numbers, np.stack([w * y, w * p, w]))])


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


def _add_to_error(error: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> _Adder:
    def add(combiner: Any, accumulator: Any, element: Any) -> Any:
        labels, predictions, w = _read(combiner, combiner._metric_key, element)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = error(labels[:, 0], predictions[:, 0]).astype(np.float64)
        counted = ~np.isnan(found)
        accumulator.total_regression_error += float(found[counted] @ w[counted])
        accumulator.total_example_weights += float(w[counted].sum())
        return accumulator

    return add


def _percentage(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.where(y == 0, np.nan, 100 * np.abs((y - p) / y))


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
        batch = read_batch(
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
    labels, predictions, weights = read_batch(element, **options, flatten=combiner.flatten)
    return combiner.add_rows(accumulator, labels[:, 0], predictions, weights)


_ADDERS: dict[type, _Adder] = {
    calibration_histogram._CalibrationHistogramCombiner: _add_to_histogram,
    binary_confusion_matrices._BinaryConfusionMatrixCombiner: _add_to_matrices,
    calibration._WeightedLabelsPredictionsExamplesCombiner: _add_to_totals,
    example_count._ExampleCountCombiner: _add_to_count,
    mean_regression_error._MeanAbsoluteErrorCombiner: _add_to_error(lambda y, p: np.abs(y - p)),
    mean_regression_error._MeanSquaredErrorCombiner: _add_to_error(lambda y, p: np.abs(y - p) ** 2),
    mean_regression_error._MeanAbsolutePercentageErrorCombiner: _add_to_error(_percentage),
    mean_regression_error._MeanSquaredLogarithmicErrorCombiner: _add_to_error(
        lambda y, p: np.abs(np.log(y + 1) - np.log(p + 1)) ** 2
    ),
    cross_entropy_metrics._BinaryCrossEntropyCombiner: _add_to_cross_entropy,
    multi_class_confusion_matrix_metrics._MultiClassConfusionMatrixCombiner: _add_to_class_matrix,
    tf_metric_wrapper._CompilableMetricsCombiner: _add_to_keras,
}
