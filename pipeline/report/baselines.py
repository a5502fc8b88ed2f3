"""What the Trainer wrote of baselines, and where the model is behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.config.evaluation import METRICS
from pipeline.report.records import NodeRecord
from trainer_module.baselines.record import FILE, Baseline, Baselines

_SHOWN = {"constant": "a constant", "linear": "a linear model"}
# A constant may have all recall there is, or a precision of 0 without a positive answer.
_NOT_OF_A_CONSTANT = ("precision", "recall")
_ROUNDING = 1e-6


def read(records: Mapping[str, NodeRecord]) -> tuple[Baseline, ...]:
    """Returns the baselines of a run; none where its Trainer wrote none."""
    trainer = records.get("Trainer")
    run = trainer.output("model_run") if trainer else None
    file = Path(run.uri) / FILE if run else None
    if file is None or not file.is_file():
        return ()
    return Baselines.from_json(file.read_text(encoding="utf-8")).baselines


def shown_name(baseline: Baseline) -> str:
    """Returns its name in a table."""
    return _SHOWN.get(baseline.name, baseline.name)


def worse_than_a_constant(values: Mapping[str, float], baselines: Sequence[Baseline]) -> list[str]:
    """Returns a sentence per metric in which the model is behind the same answer for each row."""
    found = []
    for baseline in baselines:
        for name, value in values.items():
            reference = baseline.metrics.get(name)
            if baseline.name != "constant" or reference is None or name in _NOT_OF_A_CONSTANT:
                continue
            behind = reference - value if METRICS[name].higher_is_better else value - reference
            if behind > _ROUNDING * abs(reference):
                found.append(
                    f"the model is worse than a constant: its {name} is {value:.4f}, and "
                    f"{reference:.4f} for the same answer in each row ({baseline.is_what})"
                )
    return found
