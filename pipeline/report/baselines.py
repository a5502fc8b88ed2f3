"""The baselines that the Trainer wrote, and the metrics in which the model is worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.config.evaluation import METRICS, NOT_OF_A_CONSTANT
from pipeline.graph.node_names import NodeName
from pipeline.report.records import NodeRecord, find_output, read_text
from shared_core.run_warning import RunWarning
from trainer_module.baselines.record import FILE, Baseline, Baselines

_SHOWN = {"constant": "a constant", "linear": "a linear model"}
_ROUNDING = 1e-6
_SHOWN_DIFFERENCE = 1e-3


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


def worse_than_a_constant(
    values: Mapping[str, float], baselines: Sequence[Baseline]
) -> list[RunWarning]:
    """Return a warning for each metric in which the model is worse than a constant prediction."""
    found = []
    for baseline in baselines:
        for name, value in values.items():
            reference = baseline.metrics.get(name)
            if baseline.name != "constant" or reference is None or name in NOT_OF_A_CONSTANT:
                continue
            behind = reference - value if METRICS[name].higher_is_better else value - reference
            if behind > _ROUNDING * abs(reference):
                found.append(
                    RunWarning(
                        what=f"the model is worse than a constant: its {name} is {value:.4f}, and "
                        f"{reference:.4f} for a constant prediction ({baseline.is_what})",
                        fix="Train longer or with another learning rate, or add columns",
                        number=value,
                        source=NodeName.EVALUATOR,
                    )
                )
    return found


def worse_than_linear(
    metric: str, values: Mapping[str, float], baselines: Sequence[Baseline]
) -> list[RunWarning]:
    """Return a warning if a linear model is better than the model in the selection metric."""
    for baseline in baselines:
        reference, value = baseline.metrics.get(metric), values.get(metric)
        if baseline.name != "linear" or reference is None or value is None:
            continue
        behind = reference - value if METRICS[metric].higher_is_better else value - reference
        if behind > _SHOWN_DIFFERENCE * abs(reference):
            return [
                RunWarning(
                    what=f"a linear model is better than the model: its {metric} is "
                    f"{reference:.4f}, and {value:.4f} for the model ({baseline.is_what})",
                    fix="Tune the training, or add data",
                    number=value,
                    source=NodeName.EVALUATOR,
                )
            ]
    return []
