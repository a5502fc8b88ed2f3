"""scale: [log1p, z_score]. A scaler of a function's values, as a separate scaler.

The function is applied before anything is learned (steps/numbers.py): what is left is the scaler.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from transform.aliases import Explanation
from transform.scale.pointwise import Pointwise
from transform.scale.scaler import ScaledGroup, Scaler

if TYPE_CHECKING:
    from transform.analyzers.fitted_column import FittedColumn


def chain_kind(first: str, last: str) -> str:
    """Return `Column.kind` of a chain's columns."""
    return f"{first}+{last}"


def chained(first: Pointwise, scaler: Scaler) -> Scaler:
    """Return the scaler of a function's values; its numbers are of these."""

    def explain(group: ScaledGroup, fitted: FittedColumn) -> Explanation:
        return {"of": first, **scaler.explain(group, fitted)}

    name = chain_kind(first, scaler.name)
    return dataclasses.replace(scaler, name=name, explain=explain, first=first)
