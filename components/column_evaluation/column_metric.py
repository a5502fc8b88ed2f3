"""A metric of TFMA or Keras whose combiners add batches."""

from __future__ import annotations

import json
from typing import Any

from tensorflow_model_analysis.metrics import (
    metric_specs,
    metric_types,
    metric_util,
    tf_metric_wrapper,
)
from tensorflow_model_analysis.proto import config_pb2

from components.column_evaluation.tfma_combiners import to_column_combiner


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
            each._replace(combiner=to_column_combiner(each.combiner), preprocessors=[])
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
