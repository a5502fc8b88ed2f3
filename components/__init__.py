"""Custom TFX components; one folder each: component.py, executor.py, README.md.

    from components import NormalizationLimits, NormalizationValidator

Names are imported on first use, so that a configuration that only needs `NormalizationLimits`
imports neither TensorFlow nor TFX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_module.common.extras import load

if TYPE_CHECKING:
    from components.arrow_example_gen.component import ArrowExampleGen
    from components.arrow_example_gen.csv_options import CsvOptions
    from components.arrow_example_gen.splitting import Splitting
    from components.blessed_models.component import (
        BlessedModelRecord,
        EvaluatorOfRecords,
        LatestBlessedModel,
    )
    from components.normalization_validator.artifacts import (
        NormalizationBlessing,
        NormalizationReport,
    )
    from components.normalization_validator.component import NormalizationValidator
    from components.normalization_validator.limits import NormalizationLimits
    from components.trainer.component import create_trainer
    from components.tuner.component import create_tuner

__all__ = [
    "ArrowExampleGen",
    "CsvOptions",
    "Splitting",
    "NormalizationValidator",
    "NormalizationLimits",
    "NormalizationReport",
    "NormalizationBlessing",
    "LatestBlessedModel",
    "BlessedModelRecord",
    "EvaluatorOfRecords",
    "create_trainer",
    "create_tuner",
]

_HOME = {
    "BlessedModelRecord": "components.blessed_models.component",
    "EvaluatorOfRecords": "components.blessed_models.component",
    "LatestBlessedModel": "components.blessed_models.component",
    "ArrowExampleGen": "components.arrow_example_gen.component",
    "CsvOptions": "components.arrow_example_gen.csv_options",
    "Splitting": "components.arrow_example_gen.splitting",
    "NormalizationBlessing": "components.normalization_validator.artifacts",
    "NormalizationReport": "components.normalization_validator.artifacts",
    "NormalizationLimits": "components.normalization_validator.limits",
    "NormalizationValidator": "components.normalization_validator.component",
    "create_trainer": "components.trainer.component",
    "create_tuner": "components.tuner.component",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_HOME[name], name, extra="tfx")


def __dir__() -> list[str]:
    return sorted(__all__)
