"""The Evaluator's comparison of the model with the best constant on the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from pipeline.common.json_types import JsonValue
from pipeline.config.evaluation import AGAINST_CONSTANT, METRICS

_OFF = "to bless it anyway, set evaluation.require_better_than_constant: false"


class Comparison(NamedTuple):
    """The comparison; see `components.evaluator_metrics.better_than_constant`.

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


def comparison_of(metrics: Mapping[str, JsonValue]) -> Comparison | None:
    """Return the comparison in TFMA's metrics of a slice (as JSON); None if there is none."""
    values = metrics.get(AGAINST_CONSTANT, {}).get("arrayValue", {}).get("float64Values", [])
    return Comparison(*map(float, values)) if values else None


def explain_refusal(found: Comparison | None, metric: str) -> str:
    """Return why a model that is not better than a constant is not blessed.

    Args:
        found: The comparison; None if there is none.
        metric: The selection metric.
    """
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


def format_bound(found: Comparison | None, metric: str) -> str:
    """Return the constant's value as a bound, for a table; "" if there is none."""
    if found is None or not math.isfinite(found.constant):
        return ""
    return f"{'>' if METRICS[metric].higher_is_better else '<'} {found.constant:.4g}"
