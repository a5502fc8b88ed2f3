"""The Evaluator's metrics of each slice: numbers, confusions, calibration, counts by threshold."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.evaluation import (
    AGAINST_CONSTANT,
    CALIBRATION_BINS,
    CONFUSION_MATRIX,
    METRICS,
    SCORE_HISTOGRAM,
)

LARGEST_CLASS = "largest_class"  # share of the rows

Matrix = Mapping[tuple[int, int], float]
"""(actual class, predicted class) -> rows, by their weights."""

_OFF = "to bless it anyway, set evaluation.require_better_than_constant: false"


class ClassScores(NamedTuple):
    """The scores of one class; NaN if the denominator is 0."""

    rows: float
    share: float
    precision: float
    recall: float


class Bin(NamedTuple):
    """The rows whose probability is in one range: total weight, mean probability, share of hits."""

    rows: float
    predicted: float
    observed: float


class Comparison(NamedTuple):
    """The model beside the best constant; see `components.evaluator_metrics`.

    Attributes:
        model: The selection metric of the model.
        constant: The selection metric of the best constant.
        chance: Share of random orders of the predictions that reach the model's value.
        rows: Number of rows that were compared.
    """

    model: float
    constant: float
    chance: float
    rows: float

    def bound(self, metric: str) -> str:
        """Return the constant's value as a bound, for a table; "" if it is undefined."""
        if not math.isfinite(self.constant):
            return ""
        return f"{'>' if METRICS[metric].higher_is_better else '<'} {self.constant:.4g}"


@dataclass(frozen=True)
class ThresholdCounts:
    """Confusion matrices of a binary label; a row is positive if it is above the threshold.

    Attributes:
        thresholds: Increasing from 0 to 1, float64 `[thresholds]`.
        true_positives: Σ w of the positive rows above each, float64 `[thresholds]`.
        false_positives: Σ w of the negative rows above each, float64 `[thresholds]`.
        positives: Σ w of the positive rows.
        negatives: Σ w of the negative rows.
    """

    thresholds: np.ndarray
    true_positives: np.ndarray
    false_positives: np.ndarray
    positives: float
    negatives: float

    @property
    def why_undefined(self) -> str:
        """Why there are no curves; "" if there are."""
        if not math.isfinite(self.positives + self.negatives):
            return "There are no curves: a label or a probability is not a number."
        if self.positives + self.negatives <= 0:
            return "There are no curves: these rows have no weight."
        if self.positives > 0 and self.negatives > 0:
            return ""
        return f"There are no curves: all rows are {'positive' if self.positives else 'negative'}."

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """Return false and true positive rates, from (0, 0) to (1, 1), `[thresholds + 2]`."""
        x = np.r_[0.0, self.false_positives[::-1] / self.negatives, 1.0]
        return x, np.r_[0.0, self.true_positives[::-1] / self.positives, 1.0]


@dataclass(frozen=True)
class SliceMetrics:
    """TFMA's metrics of a slice.

    Attributes:
        key: (column, value) of each column of the slice; empty: all rows.
        raw: Metric -> its value as TFMA's JSON.
    """

    key: tuple[tuple[str, JsonValue], ...]
    raw: JsonObject

    @property
    def name(self) -> str:
        """The slice as text; "" of all rows."""
        return ", ".join(f"{column}={value}" for column, value in self.key)

    @functools.cached_property
    def values(self) -> dict[str, float]:
        """The numeric metrics; NaN and infinities are strings in TFMA's JSON."""
        found = {k: float(v["doubleValue"]) for k, v in self.raw.items() if "doubleValue" in v}
        if scores := class_scores(self.matrix):
            found[LARGEST_CLASS] = next(iter(scores.values())).share
        return found

    @functools.cached_property
    def matrix(self) -> Matrix:
        """The confusion matrix of several classes, or an empty one."""
        found = self.raw.get(CONFUSION_MATRIX, {}).get("multiClassConfusionMatrixAtThresholds", {})
        entries = [entry for matrix in found.get("matrices", ()) for entry in matrix["entries"]]
        # JSON omits fields that are 0.
        return {
            (entry.get("actualClassId", 0), entry.get("predictedClassId", 0)): rows
            for entry in entries
            if (rows := float(entry.get("numWeightedExamples", 0.0)))
        }

    @property
    def bins(self) -> list[Bin]:
        """The bins of the calibration that have rows."""
        weights, predicted, observed = np.reshape(self._array(CALIBRATION_BINS), [3, -1]).tolist()
        return [
            Bin(rows, p / rows, hits / rows)
            for rows, p, hits in zip(weights, predicted, observed, strict=True)
            if rows
        ]

    @property
    def against_constant(self) -> Comparison | None:
        """The comparison with the best constant; None if there is none."""
        values = self._array(AGAINST_CONSTANT)
        return Comparison(*values) if values else None

    @property
    def counts(self) -> ThresholdCounts | None:
        """The counts at many thresholds; None if the evaluation has no histogram."""
        from components.evaluator_metrics.score_histogram import BINS, EDGES

        values = self._array(SCORE_HISTOGRAM)
        if len(values) != 2 * BINS:
            return None  # an evaluation of another version, or of another kind of label
        # Rows above threshold i are those of the bins after i.
        above = np.reshape(values, [2, BINS])[:, ::-1].cumsum(axis=1)[:, ::-1]
        return ThresholdCounts(
            thresholds=EDGES,
            true_positives=above[1, 1:],
            false_positives=above[0, 1:],
            positives=float(above[1, 0]),
            negatives=float(above[0, 0]),
        )

    def _array(self, metric: str) -> list[float]:
        values = self.raw.get(metric, {}).get("arrayValue", {}).get("float64Values", [])
        return [float(value) for value in values]


def read_slices(uri: str) -> tuple[SliceMetrics, ...]:
    """Return TFMA's metrics of each slice; all rows come first."""
    import tensorflow_model_analysis as tfma

    results = tfma.load_eval_result(uri).slicing_metrics
    ordered = sorted(results, key=lambda item: (len(item[0]), str(item[0])))
    return tuple(SliceMetrics(key, metrics[""][""]) for key, metrics in ordered)


def class_scores(matrix: Matrix) -> dict[int, ClassScores]:
    """Return precision TP / (TP + FP) and recall TP / (TP + FN) by class, most frequent first."""
    actual: dict[int, float] = defaultdict(float)
    predicted: dict[int, float] = defaultdict(float)
    for (is_one, taken_for), rows in matrix.items():
        actual[is_one] += rows
        predicted[taken_for] += rows
    total = sum(actual.values())
    scores = {}
    for label in sorted({*actual, *predicted}, key=lambda c: (-actual[c], c)):
        right = matrix.get((label, label), 0.0)
        scores[label] = ClassScores(
            rows=actual[label],
            share=_ratio(actual[label], total),
            precision=_ratio(right, predicted[label]),
            recall=_ratio(right, actual[label]),
        )
    return scores


def calibration_sentence(bins: Sequence[Bin]) -> str:
    """Return a sentence with the calibration and the expected calibration error."""
    predicted = sum(each.rows * each.predicted for each in bins)
    observed = sum(each.rows * each.observed for each in bins)
    error = sum(each.rows * abs(each.predicted - each.observed) for each in bins)
    ratio = metric_number(predicted / observed) if observed else "undefined"
    return (
        f"calibration (mean predicted / observed) {ratio}, expected calibration error "
        f"{metric_number(error / sum(each.rows for each in bins))}"
    )


def constant_refusal(found: Comparison | None, metric: str) -> str:
    """Return why a model that is not better than a constant is not blessed, by this metric."""
    if found is None or not math.isfinite(found.constant):
        return (
            f"the model was not compared with a constant by {metric}: there are no rows, all "
            f"labels are equal, or a label or prediction is not a number; {_OFF}"
        )
    values = f"{metric} is {found.model:.4g}, and {found.constant:.4g} for the best constant"
    if found.chance < 1:
        return (
            f"{values} on the same {found.rows:,.0f} rows: chance can explain that, as "
            f"{found.chance:.1%} of random orders of the predictions reach it; {_OFF}"
        )
    return f"the model is not better than a constant: {values} on the same rows; {_OFF}"


def metric_number(value: float | None) -> str:
    """Return a metric with four decimals; `undefined` if it is not finite, `-` if it is missing."""
    if value is None:
        return "-"
    return f"{value:.4f}" if math.isfinite(value) else "undefined"


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
