"""Whether a model is better than a constant on the same rows, as a metric of TFMA.

It is 1 if both hold, 0 if one does not, and NaN if the rows do not allow a comparison:

- The model's value of the metric is better than that of the best constant of these very rows: their
  median for absolute errors, their mean for squared ones, their shares of the classes.
- Chance does not explain it: of `SHUFFLES` random orders of the model's predictions, at most
  `MOST_BY_CHANCE` reach the model's value. This test assumes no distribution, so it also holds for
  heavy tails and for few rows (P. Good, "Permutation Tests", 2000).

Above 20,000 rows, it compares a random sample of that many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator_metrics.row_computations import (
    Key,
    RowCombiner,
    RowOptions,
    row_computations,
)

NAME = "better_than_constant"
_SHUFFLES = 499
_MOST_BY_CHANCE = 0.01
_MOST_ROWS = 20_000
_MOST_NUMBERS = 2_000_000
_SMALLEST = 1e-7  # probability, as Keras clips it

_Value = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
"""(labels, predictions, weights), `[rows]` or `[rows, classes]` -> the metric."""
_Prepare = Callable[[np.ndarray], tuple[np.ndarray, _Value]]
"""Predictions -> what is shuffled, one entry per row, and the metric of it."""


class _Comparison(NamedTuple):
    """The metric of a model beside that of the best constant.

    `chance` is the share of random orders of the predictions that reach the model's value; 1 if the
    model is not better than the constant.
    """

    model: float
    constant: float
    chance: float
    rows: int

    @property
    def better(self) -> float:
        """1 or 0; NaN if the rows do not allow a comparison."""
        if not (math.isfinite(self.model) and math.isfinite(self.constant)):
            return math.nan
        return float(self.chance <= _MOST_BY_CHANCE)


def _compare(
    metric: str, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray
) -> _Comparison:
    """Compare a model with the best constant by a metric of `_RULES`.

    `labels` are `[rows]`: numbers, or classes from 0. `predictions` are `[rows, 1]`, a number or
    the probability of class 1, or `[rows, classes]`. The numbers are NaN if a label or a prediction
    is not finite, if a label is no class of the model, or if all labels are equal.
    """
    rule = _RULES[metric]
    counted = weights > 0.0
    labels, predictions, weights = labels[counted], predictions[counted], weights[counted]
    # In one order, whatever the order in which Beam merged them: so shuffles are the same.
    order = np.lexsort([weights, *predictions.T, labels])
    labels, predictions, weights = labels[order], predictions[order], weights[order]
    usable = np.isfinite(labels).all() and np.isfinite(predictions).all()
    if rule.classes:
        # Transform writes -1 for a label that is missing or of an unknown class.
        known = range(max(2, predictions.shape[1]))
        usable = usable and bool(np.isin(labels, known).all())
    if not usable or len(np.unique(labels)) < 2:
        return _Comparison(math.nan, math.nan, 1.0, len(labels))
    answers, value = rule.prepare(predictions)
    sign = 1.0 if rule.higher_is_better else -1.0
    model, constant = value(labels, answers, weights), rule.constant(labels, weights)
    if not sign * model > sign * constant:
        return _Comparison(model, constant, 1.0, len(labels))
    random, reached = np.random.default_rng(0), 1  # the order that the model has is one of them
    for _ in range(_SHUFFLES):
        order = random.permutation(len(labels))
        reached += sign * value(labels, answers[order], weights) >= sign * model
    return _Comparison(model, constant, reached / (_SHUFFLES + 1), len(labels))


class _Rule(NamedTuple):
    """How a metric compares with a constant: its direction, and its value for the best constant.

    `prepare` turns predictions into what is shuffled, one entry per row, and the metric of it.
    """

    higher_is_better: bool
    constant: Callable[[np.ndarray, np.ndarray], float]
    prepare: _Prepare
    classes: bool = True


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ values / weights.sum())


def _squared(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    return _mean((labels - answers) ** 2, weights)


def _absolute(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    return _mean(np.abs(labels - answers), weights)


def _variance(labels: np.ndarray, weights: np.ndarray) -> float:
    return _mean((labels - _mean(labels, weights)) ** 2, weights)


def _deviation(labels: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(labels)
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return _mean(np.abs(labels - labels[order][half]), weights)


def _shares(labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.bincount(labels.astype(np.int64), weights) / weights.sum()


def _entropy(labels: np.ndarray, weights: np.ndarray) -> float:
    shares = _shares(labels, weights)
    shares = shares[shares > 0.0]
    return float(-(shares @ np.log(shares)))


def _right(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    return _mean((labels == answers).astype(np.float64), weights)


def _crossentropy(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    of_label = answers[np.arange(len(labels)), labels.astype(np.int64)]
    return _mean(-np.log(np.maximum(of_label, _SMALLEST)), weights)


def _numbers(value: _Value) -> _Prepare:
    return lambda predictions: (predictions[:, 0], value)


def _ranked(value: Callable[[np.ndarray, np.ndarray], float]) -> _Prepare:
    """Compute a metric of weights of both classes by distinct score, from the lowest."""

    def prepare(predictions: np.ndarray) -> tuple[np.ndarray, _Value]:
        distinct, ranks = np.unique(predictions[:, 0], return_inverse=True)

        def of_rows(labels: np.ndarray, ranks: np.ndarray, weights: np.ndarray) -> float:
            positive = np.bincount(ranks, weights * labels, len(distinct))
            return value(positive, np.bincount(ranks, weights, len(distinct)) - positive)

        return np.ravel(ranks), of_rows

    return prepare


def _area(positive: np.ndarray, negative: np.ndarray) -> float:
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


def _average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    found, taken = np.cumsum(positive[::-1]), np.cumsum((positive + negative)[::-1])
    precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0.0)
    return float(positive[::-1] @ precision / found[-1])


def _root(value: Callable[..., float]) -> Callable[..., float]:
    return lambda *rows: math.sqrt(value(*rows))


def _r_squared(labels: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> float:
    return 1.0 - _squared(labels, answers, weights) / _variance(labels, weights)


def _of_largest(labels: np.ndarray, weights: np.ndarray) -> float:
    return float(_shares(labels, weights).max())


_RULES: dict[str, _Rule] = {
    "mean_absolute_error": _Rule(False, _deviation, _numbers(_absolute), classes=False),
    "mean_squared_error": _Rule(False, _variance, _numbers(_squared), classes=False),
    "root_mean_squared_error": _Rule(
        False, _root(_variance), _numbers(_root(_squared)), classes=False
    ),
    "r2": _Rule(True, lambda labels, weights: 0.0, _numbers(_r_squared), classes=False),
    "auc": _Rule(True, lambda labels, weights: 0.5, _ranked(_area)),
    "auc_precision_recall": _Rule(True, _mean, _ranked(_average_precision)),
    "binary_accuracy": _Rule(
        True, _of_largest, lambda p: ((p[:, 0] > 0.5).astype(np.float64), _right)
    ),
    "binary_crossentropy": _Rule(
        False, _entropy, lambda p: (np.hstack([1.0 - p, p]), _crossentropy)
    ),
    "sparse_categorical_accuracy": _Rule(
        True, _of_largest, lambda p: (p.argmax(axis=1).astype(np.float64), _right)
    ),
    "sparse_categorical_crossentropy": _Rule(False, _entropy, lambda p: (p, _crossentropy)),
}
"""Metrics that a constant has a meaningful value of: not precision, recall or calibration."""


class BetterThanConstant(metric_types.Metric):
    """1, 0 or NaN, and beside it the comparison as `AGAINST_CONSTANT`, an array `[4]`."""

    def __init__(self, metric: str, name: str = NAME):
        """Compare by `metric`, a key of `RULES`; be called `name` in TFMA's results."""
        super().__init__(
            row_computations(NAME, lambda key, options: _Combiner(metric, key, options)), name=name
        )


metric_types.register_metric(BetterThanConstant)


@dataclasses.dataclass
class _Sample:
    """A random sample of rows, in parts: random numbers, labels, predictions and weights.

    Each part is arrays `[rows]`, predictions `[rows, outputs]`. The rows with the lowest random
    numbers of all are the sample.
    """

    parts: list[tuple[np.ndarray, ...]] = dataclasses.field(default_factory=list)
    rows: int = 0

    def add(self, *part: np.ndarray) -> None:
        """Add some rows."""
        self.parts.append(part)
        self.rows += len(part[0])
        self.reduce(slack=2)

    def reduce(self, *, slack: int = 1) -> None:
        """Keep the sample, once there are more than `slack` times as many rows as it has."""
        outputs = self.parts[0][2].shape[1] if self.parts else 1
        most = min(_MOST_ROWS, max(1, _MOST_NUMBERS // outputs))
        if self.rows > slack * most:
            columns = [np.concatenate(values) for values in zip(*self.parts, strict=True)]
            lowest = np.argpartition(columns[0], most - 1)[:most]
            self.parts, self.rows = [tuple(values[lowest] for values in columns)], most


class _Combiner(RowCombiner):
    details = "against_constant"

    def __init__(self, metric: str, key: Key, options: RowOptions):
        super().__init__(key, options)
        self.metric = metric
        self._random: np.random.Generator | None = None  # of a worker: not pickled

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_random": None}

    def create_accumulator(self) -> _Sample:
        return _Sample()

    def add_rows(
        self, accumulator: _Sample, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray
    ) -> _Sample:
        if self._random is None:
            self._random = np.random.default_rng()
        accumulator.add(
            self._random.random(len(labels)),
            np.asarray(labels, np.float64),
            np.array(predictions, np.float64),  # a copy: the batch need not stay in memory
            np.asarray(weights, np.float64),
        )
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_Sample]) -> _Sample:
        merged = _Sample()
        for each in accumulators:
            for part in each.parts:
                merged.add(*part)
        return merged

    def compact(self, accumulator: _Sample) -> _Sample:
        accumulator.reduce()
        return accumulator

    def extract_output(self, accumulator: _Sample) -> dict[Key | None, float | np.ndarray]:
        accumulator.reduce()
        if not accumulator.rows:
            found = _Comparison(math.nan, math.nan, 1.0, 0)
        else:
            _, labels, predictions, weights = map(
                np.concatenate, zip(*accumulator.parts, strict=True)
            )
            found = _compare(self.metric, labels, predictions, weights)
        return {self.key: found.better, self.beside: np.array(found, np.float64)}
