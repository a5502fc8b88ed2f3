"""The baselines that the Trainer wrote, and whether the model is worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.config.evaluation import METRICS
from pipeline.graph.node_names import NodeName
from pipeline.report.records import NodeRecord, find_output, read_text
from shared_core.run_warning import RunWarning
from trainer_module.baselines.record import FILE, Baseline, Baselines

_SHOWN = {"constant": "a constant", "linear": "a linear model"}
_NOT_SHOWN = {"linear": 1e-3}  # a difference that a table does not show
_ROUNDING = 1e-6


def read(records: Mapping[str, NodeRecord]) -> tuple[Baseline, ...]:
    """Return the baselines of a run; empty if its Trainer wrote none."""
    found = read_all(records)
    return found.baselines if found else ()


def read_all(records: Mapping[str, NodeRecord]) -> Baselines | None:
    """Return everything that the Trainer wrote about baselines; None if it wrote nothing."""
    text = read_text(find_output(records, NodeName.TRAINER, "model_run"), FILE)
    return Baselines.from_json(text) if text else None


def shown_name(baseline: Baseline) -> str:
    """Return the name of a baseline in a table."""
    return _SHOWN.get(baseline.name, baseline.name)


def worse_than_baselines(
    metric: str, values: Mapping[str, float], baselines: Sequence[Baseline]
) -> list[RunWarning]:
    """Return a warning for each baseline that is better than the model in the selection metric."""
    found = []
    for baseline in baselines:
        reference, value = baseline.metrics.get(metric), values.get(metric)
        if reference is None or value is None:
            continue
        behind = reference - value if METRICS[metric].higher_is_better else value - reference
        if behind <= _NOT_SHOWN.get(baseline.name, _ROUNDING) * abs(reference):
            continue
        found.append(
            RunWarning(
                what=f"{shown_name(baseline)} is better than the model: its {metric} is "
                f"{reference:.4f}, and {value:.4f} for the model ({baseline.is_what})",
                fix="Tune the training, or add rows or columns",
                number=value,
                source=NodeName.EVALUATOR,
            )
        )
    return found
