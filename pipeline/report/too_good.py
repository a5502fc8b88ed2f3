"""Warn about implausibly good results."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.graph.node_names import NodeName
from shared_core.run_warning import RunWarning
from trainer_module.baselines.record import Baselines

_TOO_GOOD = {
    "auc": 0.995,
    "auc_precision_recall": 0.995,
    "binary_accuracy": 0.995,
    "sparse_categorical_accuracy": 0.995,
    "r2": 0.99,
}


def too_good(values: Mapping[str, float], found: Baselines | None) -> list[RunWarning]:
    """Return a warning if a metric is better than usual for honest data.

    Args:
        values: The model's metrics.
        found: The Trainer's measurements; None if it measured nothing.
    """
    # A constant also reaches an accuracy of 0.995 if a class is rare enough.
    constants = found.baselines[0].metrics if found and found.baselines else {}
    for metric, bound in _TOO_GOOD.items():
        value, constant = values.get(metric), constants.get(metric)
        if value is None or not value > bound or (constant or 0.0) > 2 * bound - 1:
            continue
        what = f"{metric} is {value:.4f}, which is rare for honest data"
        fix = "Check that each feature is known when a prediction is made"
        return [RunWarning(what=what, fix=fix, number=value, source=NodeName.EVALUATOR)]
    return []
