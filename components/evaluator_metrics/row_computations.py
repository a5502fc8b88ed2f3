"""How TFMA creates a metric of rows: by its key, and how the values of a row are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorflow_model_analysis.metrics import metric_types, metric_util

if TYPE_CHECKING:
    from tensorflow_model_analysis.proto import config_pb2


Key: TypeAlias = metric_types.MetricKey
Computation: TypeAlias = metric_types.MetricComputation
Inputs: TypeAlias = metric_types.StandardMetricInputs
# How `metric_util.to_label_prediction_example_weight` reads a row.
RowOptions: TypeAlias = dict[str, Any]


def row_computations(
    name: str, compute: Callable[[Key, RowOptions], Computation]
) -> Callable[..., list[Computation]]:
    """Return the computations of a metric, one for each key, as `metric_types.Metric` takes them.

    Args:
        name: of the metric, where TFMA gives none.
        compute: the MetricComputation, from the metric's key and the options that
            `metric_util.to_label_prediction_example_weight` reads a row by.
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
    ) -> list[Computation]:
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
        return [compute(Key(name=name, **of_key), options)]

    return metric_util.merge_per_key_computations(computations)
