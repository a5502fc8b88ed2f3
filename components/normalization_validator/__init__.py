"""NormalizationValidator: checks that what Transform wrote is normalised, column by column.

component.py   the node: inputs, outputs, parameters
executor.py    one Beam pass over every split, the report, the verdict
columns.py     which columns there are, and how a record batch becomes arrays
statistics.py  the mergeable statistics of one feature, exact whatever the order
value_grid.py  the bins on which splits are compared
shift.py       how far a split is from train, by ranks
raw_columns.py what StatisticsGen says of the raw columns: a constant that lost its values
raw_distribution.py  histograms of the raw columns, for pages
limits.py      what is accepted
check.py       statistics against limits: the sentence that names each violated one
report.py      report.json
artifacts.py   the two output types
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from components.normalization_validator.artifacts import (
        NormalizationBlessing,
        NormalizationReport,
    )
    from components.normalization_validator.component import NormalizationValidator
    from components.normalization_validator.executor import NormalizationError
    from components.normalization_validator.limits import NormalizationLimits
    from components.normalization_validator.report import Report

__all__ = [
    "NormalizationBlessing",
    "NormalizationError",
    "NormalizationLimits",
    "NormalizationReport",
    "NormalizationValidator",
    "Report",
]

_MODULE = {
    "NormalizationBlessing": "artifacts",
    "NormalizationError": "executor",
    "NormalizationLimits": "limits",
    "NormalizationReport": "artifacts",
    "NormalizationValidator": "component",
    "Report": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
