"""The warnings about a run's columns and metrics."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipeline.common.json_types import JsonObject
from pipeline.config.evaluation import FEW_JUDGED, METRICS, ROWS
from pipeline.graph.node_names import NodeName
from shared_core.run_warning import RunWarning
from trainer_module.baselines.record import Baseline, Baselines

BASELINE_NAMES = {"constant": "a constant", "linear": "a linear model"}
_NOT_SHOWN = {"linear": 1e-3}  # a difference that a table does not show
_ROUNDING = 1e-6
_TOO_GOOD = {
    "auc": 0.995,
    "auc_precision_recall": 0.995,
    "binary_accuracy": 0.995,
    "sparse_categorical_accuracy": 0.995,
    "r2": 0.99,
}


def column_cautions(transform_graph: Path | None) -> list[RunWarning]:
    """Return Transform's warnings."""
    return [] if transform_graph is None else _read_cautions(transform_graph)


@functools.lru_cache(maxsize=1)  # reading them loads a SavedModel
def _read_cautions(transform_graph: Path) -> list[RunWarning]:
    from transform import column_cautions

    return column_cautions(str(transform_graph))


def skipped_images(number: int, first: Sequence[str]) -> list[RunWarning]:
    """Return a warning if ExampleGen left images out (`data.on_damage: skip`)."""
    if not number:
        return []
    return [
        RunWarning(
            what=f"{number:,} {'image is' if number == 1 else 'images are'} left out: "
            + "; ".join(first)
            + ("; ..." if number > len(first) else ""),
            fix="Write these files again, or remove them",
            number=number,
            source=NodeName.EXAMPLE_GEN,
        )
    ]


def limit_warnings(violations: Iterable[JsonObject]) -> list[RunWarning]:
    """Return the violated limits with which the run continued (`on_failure: warn`)."""
    return [
        RunWarning(
            what=each["message"].rstrip("."),
            fix="Correct the column's scaling in features, or the limits",
            column=each["column"],
            number=each["value"],
            source=NodeName.NORMALIZATION_VALIDATOR,
        )
        for each in violations
    ]


def worse_than_baselines(
    metric: str, values: Mapping[str, float], baselines: Sequence[Baseline]
) -> list[RunWarning]:
    """Return a warning for each baseline that is better than the model in the selection metric."""
    warnings = []
    for baseline in baselines:
        reference, value = baseline.metrics.get(metric), values.get(metric)
        if reference is None or value is None:
            continue
        behind = reference - value if METRICS[metric].higher_is_better else value - reference
        if behind <= _NOT_SHOWN.get(baseline.name, _ROUNDING) * abs(reference):
            continue
        name = BASELINE_NAMES.get(baseline.name, baseline.name)
        warnings.append(
            RunWarning(
                what=f"{name} is better than the model: its {metric} is {reference:.4f}, and "
                f"{value:.4f} for the model ({baseline.is_what})",
                fix="Tune the training, or add rows or columns",
                number=value,
                source=NodeName.EVALUATOR,
            )
        )
    return warnings


def too_good(values: Mapping[str, float], measured: Baselines | None) -> list[RunWarning]:
    """Return a warning if a metric is better than usual for honest data."""
    # A constant also reaches an accuracy of 0.995 if a class is rare enough.
    constants = measured.baselines[0].metrics if measured and measured.baselines else {}
    for metric, bound in _TOO_GOOD.items():
        value, constant = values.get(metric), constants.get(metric)
        if value is None or not value > bound or (constant or 0.0) > 2 * bound - 1:
            continue
        what = f"{metric} is {value:.4f}, which is rare for honest data"
        fix = "Check that each feature is known when a prediction is made"
        return [RunWarning(what=what, fix=fix, number=value, source=NodeName.EVALUATOR)]
    return []


def few_rows(values: Mapping[str, float], split: str) -> list[RunWarning]:
    """Return a warning if so few rows were evaluated that the metrics are unreliable."""
    rows = values.get(ROWS, FEW_JUDGED)
    if rows >= FEW_JUDGED:
        return []
    return [
        RunWarning(
            what="the metrics are unreliable: only "
            + ("1 row" if rows == 1 else f"{rows:.0f} rows")
            + " evaluated",
            fix=f"Evaluate {FEW_JUDGED} rows or more: add rows, or enlarge the split {split}",
            number=rows,
            source=NodeName.EVALUATOR,
        )
    ]
