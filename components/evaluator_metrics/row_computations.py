"""Create a metric of rows for TFMA, and combine rows one at a time or a batch at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util

if TYPE_CHECKING:
    from tensorflow_model_analysis.proto import config_pb2


Key: TypeAlias = metric_types.MetricKey
# How `metric_util.to_label_prediction_example_weight` reads a row.
RowOptions: TypeAlias = dict[str, Any]


class RowCombiner(beam.CombineFn):
    """A combiner whose metric is a function of labels, predictions and weights.

    TFMA adds one row at a time; `components.column_evaluation` adds the columns of a batch.

    Attributes:
        key: Of the metric.
        beside: Key of what is in the results beside it, called `details`; None: nothing is.
        options: How TFMA reads a row.
        flatten: Whether each pair of a label and an output is a row.
    """

    details: ClassVar[str | None] = None
    flatten: ClassVar[bool] = False

    def __init__(self, key: Key, options: RowOptions):
        self.key, self.options = key, options
        self.beside = key._replace(name=self.details) if self.details else None

    @abstractmethod
    def add_rows(
        self, accumulator: Any, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray
    ) -> Any:
        """Return the accumulator with rows added; predictions are `[rows, outputs]`."""

    def add_input(self, accumulator: Any, element: metric_types.StandardMetricInputs) -> Any:
        """Return the accumulator with one row of TFMA added."""
        rows = metric_util.to_label_prediction_example_weight(
            element, **self.options, flatten=self.flatten
        )
        for label, prediction, weight in rows:
            accumulator = self.add_rows(
                accumulator,
                np.ravel(label)[:1],
                np.reshape(prediction, [1, -1]),
                np.ravel(weight)[:1],
            )
        return accumulator


class SumCombiner(RowCombiner):
    """A metric of sums over rows: an accumulator is an array of `shape`."""

    shape: ClassVar[tuple[int, ...]]

    def create_accumulator(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros(self.shape)

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        """Return the sum."""
        return np.sum([self.create_accumulator(), *accumulators], axis=0)

    def extract_output(self, accumulator: np.ndarray) -> dict[Key, Any]:
        """Return the sums themselves."""
        return {self.key: accumulator}


def row_computations(
    name: str, create: Callable[[Key, RowOptions], RowCombiner]
) -> Callable[..., list[metric_types.MetricComputation]]:
    """Return the computations of a metric, one for each key, as `metric_types.Metric` takes them.

    `name` is the metric's where TFMA gives none; `create` makes the combiner from the metric's key
    and the options that `metric_util.to_label_prediction_example_weight` reads a row by.
    """

    # TFMA looks at the names of the arguments.
    def computations(
        name: str = name,
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        sub_key: metric_types.SubKey | None = None,
        aggregation_type: metric_types.AggregationType | None = None,
        class_weights: dict[int, float] | None = None,
        example_weighted: bool = False,
    ) -> list[metric_types.MetricComputation]:
        of_key = {
            "model_name": model_name,
            "output_name": output_name,
            "sub_key": sub_key,
            "example_weighted": example_weighted,
        }
        options = {
            **of_key,
            "eval_config": eval_config,
            "aggregation_type": aggregation_type,
            "class_weights": class_weights,
        }
        combiner = create(Key(name=name, **of_key), options)
        keys = [combiner.key, *([combiner.beside] if combiner.beside else [])]
        return [metric_types.MetricComputation(keys, None, combiner)]

    return metric_util.merge_per_key_computations(computations)
